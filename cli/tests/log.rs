//! `counterfoil log`, the real program, on stores that the log wrote, whole and damaged.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "all of this is tests, the parts that they share included")]

mod ended;

mod log {
    mod damaged;
    mod job;
    pub(crate) mod stores;
    mod whole;
    mod without_manifest;
}
