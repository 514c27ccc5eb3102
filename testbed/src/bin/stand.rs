//! A client with two networks in namespaces, for whoever wants to look at one that is at work: prints the control socket's path when
//! both paths are up, and ends with its standard input.
//!
//! Both networks have a round trip of 10 ms and lose 0.1 % each way, as in the paper's fairness experiment, but 40 Mbit/s, which programs
//! that are built without optimisation reach too. The relay measures, the mode is bicast.

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(stand())
}

#[cfg(target_os = "linux")]
async fn stand() -> anyhow::Result<()> {
    use std::time::Duration;

    use tandem_netem::{Bitrate, LinkConfig, Loss};
    use tandem_testbed::namespaces::{Bed, Client, Line, Plan, Programs, Relay};

    if let Some(lack) = Bed::lacks() {
        anyhow::bail!("this machine lacks {lack}");
    }
    let link = |seed| {
        let round_trip = Duration::from_millis(10);
        let config = LinkConfig {
            rate: Some(Bitrate::from_mbit(40)),
            delay: round_trip / 2,
            loss: Loss::Random(0.001),
            mtu: Some(1_500),
            seed,
            ..LinkConfig::default()
        };
        config.with_queue_bdp(1.0, round_trip)
    };
    let lines = vec![Line::wifi(link(1), link(2)), Line::cell(link(3), link(4))];
    let bed = Bed::build(&Plan { lines, ..Plan::standard(1) })?;
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
