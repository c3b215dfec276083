//! `flowgate serve`: serves what the configuration says.

use super::failure::Failure;
use crate::{cli::ServeOptions, serve};

/// Serves until a signal asks to stop.
pub(crate) fn serve(options: &ServeOptions) -> Result<(), Failure> {
    let sources = options.config.sources();
    let loaded = sources.load()?;
    serve::serve(options, &loaded.config, sources)?;
    Ok(())
}
