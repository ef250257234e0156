//! Replays the corpora.

#![allow(clippy::unwrap_used, reason = "a panic reports the failure of a test")]

use std::path::Path;

use headgate_fuzz::TARGETS;

#[test]
fn no_file_of_a_corpus_breaks_an_invariant() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in TARGETS {
        let mut files: Vec<_> = std::fs::read_dir(corpus.join(name))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert!(files.len() >= 10, "the corpus of {name} has {} files only", files.len());
        for file in files {
            println!("{}", file.display());
            let bytes = std::fs::read(&file).unwrap();
            target(&bytes);
            // Cut off or with one bit changed, at each position.
            for at in 0..bytes.len().min(300) {
                target(&bytes[..at]);
                let mut changed = bytes.clone();
                changed[at] ^= 1 << (at % 8);
                target(&changed);
            }
        }
    }
}
