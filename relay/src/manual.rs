//! Man pages and shell completions of a program, made from its command line's own definition, for those who package it.

use std::fs;
use std::io;
use std::path::Path;

use clap::ValueEnum as _;
use clap_complete::Shell;

/// Writes `man/man1/PROGRAM*.1`, a page for each command, and `completions/` for every shell into `folder`.
///
/// # Errors
/// When a file cannot be written.
pub fn write(mut program: clap::Command, folder: &Path) -> io::Result<()> {
    let (man, completions) = (folder.join("man").join("man1"), folder.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(program.clone(), &man)?;
    let name = program.get_name().to_owned();
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut program, &name, &completions)?;
    }
    Ok(())
}
