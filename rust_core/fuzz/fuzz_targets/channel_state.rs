//! Fuzzes `channel_state`; built without `--cfg fuzzing`, runs the files given as arguments.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| headgate_fuzz::channel_state(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    headgate_fuzz::replay(headgate_fuzz::channel_state)
}
