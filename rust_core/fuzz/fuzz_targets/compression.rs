//! Fuzzes `compression`; without the flags of scripts/fuzz.sh it runs the files that are its arguments.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| headgate_fuzz::compression(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    headgate_fuzz::replay(headgate_fuzz::compression)
}
