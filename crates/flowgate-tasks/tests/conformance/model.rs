//! Random histories against a small model of the laws.
