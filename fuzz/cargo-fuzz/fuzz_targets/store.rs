#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| counterfoil_fuzz::store(data));
