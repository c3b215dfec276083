//! Another route of the same context.

use std::{any::type_name, marker::PhantomData};

use flowgate_core::Code;

use crate::route::{
    cx::Cx, destination::Destination, error::Error, exchange::Exchange, mounted::Mounted, plan::Link,
    step::Outcome,
};

/// Sends to the route of the same context that has this id and begins with `direct()`. There it is a new exchange
/// with the same correlation id and headers, and it runs inside this one. Starting the context fails if there is no
/// such route, or if its bodies have other types.
pub fn direct_to<I, O>(id: &str) -> DirectTo<I, O> {
    DirectTo { id: id.to_owned(), bodies: PhantomData }
}

/// The destination that [`direct_to`] returns.
#[derive(Clone, Debug)]
pub struct DirectTo<I, O> {
    id: String,
    bodies: PhantomData<fn(I) -> O>,
}

impl<I: Send + 'static, O: Send + 'static> Destination<I> for DirectTo<I, O> {
    type Reply = O;

    async fn send<'a>(&'a self, exchange: Exchange<I>, cx: Cx<'a>) -> Outcome<O> {
        let found = cx.site.context.upgrade().and_then(|context| context.find::<Mounted<I, O>>(&self.id));
        let Some(route) = found else {
            let message =
                format!("no route `{}` takes {} and answers {}", self.id, type_name::<I>(), type_name::<O>());
            return Err(Error::new(Code::NoHandler, message).into());
        };
        let (body, rest) = exchange.take();
        let answer = route.fly(rest.caused(body), cx.sent_at).inner().await?;
        Ok(rest.with(answer.body))
    }

    #[expect(private_interfaces, reason = "see the trait")]
    fn link(&self) -> Option<Link> {
        Some(Link::of::<I, O>(&self.id))
    }
}
