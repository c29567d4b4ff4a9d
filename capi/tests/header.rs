//! Check of the header in `include` against the source.
//!
//! After a source change, `COUNTERFOIL_WRITE_HEADER=1 cargo test -p counterfoil-capi` writes it.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

use std::path::Path;

fn generate() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    // The root brings its modules in.
    let builder = cbindgen::Builder::new().with_config(config).with_src(root.join("src/lib.rs"));
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    without_rust(&String::from_utf8(text).unwrap())
}

/// Leaves out comment sections for readers of the source: C has no other functions.
fn without_rust(header: &str) -> String {
    let mut text = String::new();
    let mut is_safety = false;
    let mut held = String::new();
    for line in header.lines() {
        let comment = line.trim_start().strip_prefix("//");
        match comment {
            Some(comment) if comment.trim() == "# Safety" => {
                is_safety = true;
                held.clear();
            }
            Some(_) if is_safety => {}
            // An empty comment line, possibly before such a section.
            Some(comment) if comment.trim().is_empty() => held = format!("{line}\n"),
            _ => {
                is_safety = false;
                text.push_str(&std::mem::take(&mut held));
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[test]
fn the_header_is_that_of_the_source() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/counterfoil.h");
    let generated = generate();
    if std::env::var_os("COUNTERFOIL_WRITE_HEADER").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == generated, "run COUNTERFOIL_WRITE_HEADER=1 cargo test -p counterfoil-capi --test header");
    let version = env!("CARGO_PKG_VERSION").split('.');
    for (name, part) in ["MAJOR", "MINOR", "PATCH"].into_iter().zip(version) {
        assert!(generated.contains(&format!("#define COUNTERFOIL_VERSION_{name} {part}\n")), "cbindgen.toml: {name}");
    }
}
