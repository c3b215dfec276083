//! The README and the docs as doc tests: what they show compiles, runs, and says what they say it says.
//!
//! Owns one empty item for each page with Rust in it. `cargo xtask snippets` sees to it that no page is forgotten.

#[cfg(all(feature = "axum", feature = "route"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[doc = include_str!("../../../docs/guide/gates.md")]
struct GuideGates;

#[cfg(feature = "route")]
#[doc = include_str!("../../../docs/migrate/from-a-semaphore.md")]
struct FromASemaphore;

#[cfg(feature = "axum")]
#[doc = include_str!("../../../docs/guide/http.md")]
struct GuideHttp;

#[cfg(all(feature = "axum", feature = "shared-redis"))]
#[doc = include_str!("../../../docs/guide/shared.md")]
struct GuideShared;

#[cfg(feature = "http")]
#[doc = include_str!("../../../docs/guide/http-client.md")]
struct GuideHttpClient;

#[cfg(feature = "route-queue")]
#[doc = include_str!("../../../docs/guide/routes.md")]
struct GuideRoutes;

#[doc = include_str!("../../../docs/errors/RC5003.md")]
struct ErrorRc5003;

#[doc = include_str!("../../../docs/errors/RC5013.md")]
struct ErrorRc5013;

#[doc = include_str!("../../../docs/errors/RC5026.md")]
struct ErrorRc5026;

#[cfg(feature = "route")]
#[doc = include_str!("../../../docs/errors/RC1002.md")]
struct ErrorRc1002;

#[cfg(feature = "route")]
#[doc = include_str!("../../../docs/errors/RC2001.md")]
struct ErrorRc2001;

#[cfg(feature = "route")]
#[doc = include_str!("../../../docs/errors/RC3003.md")]
struct ErrorRc3003;

#[cfg(feature = "route")]
#[doc = include_str!("../../../docs/errors/RC5001.md")]
struct ErrorRc5001;

#[cfg(feature = "route")]
#[doc = include_str!("../../../docs/errors/RC5002.md")]
struct ErrorRc5002;

#[cfg(feature = "route")]
#[doc = include_str!("../../../docs/errors/RC5011.md")]
struct ErrorRc5011;

#[cfg(feature = "route")]
#[doc = include_str!("../../../docs/errors/RC5016.md")]
struct ErrorRc5016;

#[cfg(feature = "route")]
#[doc = include_str!("../../../docs/errors/RC5025.md")]
struct ErrorRc5025;
