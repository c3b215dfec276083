//! `flowgate serve`: serves what the configuration says.

use super::failure::Failure;
use crate::{cli::ServeOptions, serve};

/// Serves until a signal asks to stop.
pub(crate) fn serve(options: &ServeOptions) -> Result<(), Failure> {
    let proxy = options.egress_proxy.as_ref();
    let sources = options.config.sources().flag("server", "egress_proxy", "--egress-proxy", proxy);
    let loaded = sources.load()?;
    serve::serve(options, &loaded.config, sources)?;
    Ok(())
}
