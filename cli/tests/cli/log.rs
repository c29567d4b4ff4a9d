//! End-to-end tests of `counterfoil log` on intact and damaged stores.

mod damaged;
pub(crate) mod fixture;
mod intact;
mod job;
mod without_manifest;
