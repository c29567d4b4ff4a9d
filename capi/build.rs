//! Gives the shared library its name for the dynamic linker.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Before 1.0, a new minor version is another interface.
    let [major, minor] =
        ["CARGO_PKG_VERSION_MAJOR", "CARGO_PKG_VERSION_MINOR"].map(|part| std::env::var(part).unwrap_or_default());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcounterfoil.so.{major}.{minor}");
}
