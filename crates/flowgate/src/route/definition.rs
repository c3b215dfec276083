//! A route that is built.
//!
//! Owns the definition: the whole chain, and what state it needs. It holds no state itself: each context that it is added to
//! builds its own.

use std::{fmt, sync::Arc};

use flowgate_core::Spot;

use super::{
    draft::Wrapping,
    error::Error,
    plan::Plan,
    source::Opener,
    step::{Erased, Step},
    steps::Steps,
    wrap::Complete,
};

/// A route: a source, steps, and the wrappers around them. Cheap to clone; add it to a [`Context`](super::Context) to
/// run it. `R` is the body that comes in, `O` the one that goes out.
///
/// ```
/// use flowgate::route::{Concurrency, Context, Route, direct};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let route = Route::new("double")
///     .concurrency(Concurrency::max(5)) // before `.from()`: the whole route
///     .from(direct())
///     .transform(|number: u32| number * 2)
///     .build()?;
///
/// let context = Context::new();
/// context.add(&route)?;
/// context.start()?;
/// let double = context.direct::<u32, u32>("double")?;
/// assert_eq!(double.call(21).await?, 42);
/// # Ok(())
/// # }
/// ```
pub struct Route<R, O> {
    pub(crate) definition: Arc<Definition<R, O>>,
}

pub(crate) struct Definition<R, O> {
    pub(crate) plan: Plan,
    pub(crate) chain: Erased<R, O>,
    pub(crate) opener: Opener<R, O>,
    pub(crate) spot: Spot,
    /// The place of the outermost route-scope `concurrency` among the gates.
    pub(crate) outermost: Option<usize>,
}

/// What stands before the steps of a whole route.
pub struct Head<R, I, O> {
    pub(crate) wrap: Wrapping<R, I, O>,
    pub(crate) opener: Opener<R, O>,
    pub(crate) spot: Spot,
    pub(crate) outermost: Option<usize>,
}

impl<R, I, O, C, W> Steps<Head<R, I, O>, O, C, W>
where
    R: Send + 'static,
    I: Send + 'static,
    O: Send + 'static,
    C: Step<I, Out = O>,
{
    /// Builds the route, or returns the first mistake in it.
    pub fn build(self) -> Result<Route<R, O>, Error>
    where
        W: Complete,
    {
        let Steps { head, mut plan, chain, .. } = self;
        if let Some(problem) = plan.problem.take() {
            return Err(problem);
        }
        let Head { wrap, opener, spot, outermost } = head;
        let chain = wrap.around(chain);
        Ok(Route { definition: Arc::new(Definition { plan, chain, opener, spot, outermost }) })
    }
}

impl<R, O> Route<R, O> {
    /// Returns its id.
    pub fn id(&self) -> &str {
        &self.definition.plan.id
    }
}

impl<R, O> Clone for Route<R, O> {
    fn clone(&self) -> Self {
        Route { definition: Arc::clone(&self.definition) }
    }
}

impl<R, O> fmt::Debug for Route<R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl<R, I, O> fmt::Debug for Head<R, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head").finish_non_exhaustive()
    }
}
