//! Reading the file: a tree of values with places, out of which options are read one by one. Reading order:
//! [`Report`] collects the errors; [`Fields`] is a table and [`Entry`] one of its values. This module knows no
//! option by name: those are declared in [`super::options`].

mod entry;
mod fields;
mod report;
mod suggestion;

pub(super) use entry::{Entry, without_password};
pub(super) use fields::{Fields, Given, Label};
pub(super) use report::{Read, Report, Told};
pub(super) use suggestion::suggestion;
