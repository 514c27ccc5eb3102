//! A client with two networks in namespaces, for whoever wants to look at one that is at work: prints the control socket's path when
//! both paths are up, and ends with its standard input.
//!
//! The networks are the paper's, with 0.1 % loss each way as in its fairness experiment. The relay measures, the mode is bicast.

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(stand())
}

#[cfg(target_os = "linux")]
async fn stand() -> anyhow::Result<()> {
    use tandem_testbed::namespaces::{Bed, Client, Plan, Programs, Relay};

    if let Some(lack) = Bed::lacks() {
        anyhow::bail!("this machine lacks {lack}");
    }
    let bed = Bed::build(&Plan::paper(0.001, 1))?;
    let programs = Programs::beside_this_one()?;
    let relay = Relay::start_plain(&bed, &programs)?;
    let client = Client::start(&bed, &programs, &relay, &["--mode", "bicast"])?;
    client.paths_up(2).await?;
    println!("{}", client.control().display());
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("the bed of namespaces needs Linux");
    std::process::ExitCode::FAILURE
}
