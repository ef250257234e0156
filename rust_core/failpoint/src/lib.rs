//! Failpoints: places at changes of state where tests inject faults. Only with the feature
//! `failpoints`.
//!
//! `fail_point!(NAME);` in a function that cannot fail, `fail_point!(NAME, text => return Err(...));`
//! elsewhere, with the text of the error. No two have the same name.

#![forbid(unsafe_code)]

#[cfg(feature = "failpoints")]
mod rules;

#[cfg(feature = "failpoints")]
pub use rules::{VARIABLE, configure, hit, hits, pass};

/// Marks a failpoint. Expands to nothing without the feature `failpoints`.
#[cfg(feature = "failpoints")]
#[macro_export]
macro_rules! fail_point {
    ($name:literal) => {
        $crate::pass($name)
    };
    ($name:literal, $text:ident => $then:expr) => {
        if let Some($text) = $crate::hit($name) {
            $then
        }
    };
}

/// Marks a failpoint. Expands to nothing without the feature `failpoints`.
#[cfg(not(feature = "failpoints"))]
#[macro_export]
macro_rules! fail_point {
    ($name:literal) => {};
    ($name:literal, $text:ident => $then:expr) => {};
}
