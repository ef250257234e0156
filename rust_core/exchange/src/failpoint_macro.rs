//! The macro that marks a failpoint. It expands to nothing without the feature `failpoints`.
//!
//! `fail_point!("name");` in a function that cannot fail, `fail_point!("name", error => return
//! Err(error));` elsewhere.

#[cfg(feature = "failpoints")]
macro_rules! fail_point {
    ($name:literal) => {
        $crate::failpoint::pass($name)
    };
    ($name:literal, $error:ident => $then:expr) => {
        if let Some($error) = $crate::failpoint::hit($name) {
            $then
        }
    };
}

#[cfg(not(feature = "failpoints"))]
macro_rules! fail_point {
    ($name:literal) => {};
    ($name:literal, $error:ident => $then:expr) => {};
}
