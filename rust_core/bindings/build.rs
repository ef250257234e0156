//! Refuses to build for a Python without the GIL. Decision: ADR 0063.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if pyo3_build_config::get().is_free_threaded() {
        println!(
            "cargo::error=Headgate does not run on a free-threaded Python: build it with an interpreter that has the GIL, \
             by `maturin build --interpreter python3.13` or `PYO3_PYTHON=python3.13`; without the native module there is \
             the wheel py3-none-any"
        );
    }
}
