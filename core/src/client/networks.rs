//! The machine's networks: which of them carry paths, when that changes, and when the machine wakes from a sleep.
//!
//! Without names from the user these are all that lead outside; with names, exactly the named ones; in either case without
//! those that their accounts bar. One task looks at the machine; everyone else sees what it saw last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tandem_proto::networks::Bar;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::accounts::Accounts;
use super::handshake::SessionError;
use super::race::Way;
use super::wake::{self, Sleeper};
use crate::platform::{Changes, Interface, Platform};
use crate::transport::PathSpec;

/// Changes come in bursts (address, route, state); they are looked at once they have calmed down.
const CALM: Duration = Duration::from_millis(200);
/// How often to look though no change was told of.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The machine's networks, as far as the session may use them.
pub(super) struct Networks {
    platform: Arc<dyn Platform>,
    names: Vec<String>,
    accounts: Arc<Accounts>,
    machine: watch::Receiver<Machine>,
    _watching: Arc<AbortOnDropHandle<()>>,
}

/// What was last seen of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Machine {
    interfaces: Vec<Interface>,
    /// Networks that carry no path, and why.
    barred: BTreeMap<String, Bar>,
    /// Why the system does not tell of interfaces.
    problem: Option<String>,
    /// How often it woke from a sleep.
    pub(super) wakes: u64,
}

impl Networks {
    /// Begins to watch; to be called within a runtime.
    pub(super) fn new(platform: Arc<dyn Platform>, names: Vec<String>, accounts: Arc<Accounts>) -> Self {
        let looker = Looker { platform: Arc::clone(&platform), names: names.clone(), accounts: Arc::clone(&accounts) };
        let (sender, machine) = watch::channel(looker.look(0));
        let watching = Arc::new(AbortOnDropHandle::new(tokio::spawn(watch(looker, sender))));
        Self { platform, names, accounts, machine, _watching: watching }
    }

    /// The same machine, of which only the named networks are used.
    pub(super) fn only(&self, names: Vec<String>) -> Self {
        Self {
            platform: Arc::clone(&self.platform),
            names,
            accounts: Arc::clone(&self.accounts),
            machine: self.machine.clone(),
            _watching: Arc::clone(&self._watching),
        }
    }

    /// Tells of changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<Machine> {
        self.machine.clone()
    }

    /// The interfaces that carry paths now; empty also if the system does not tell.
    pub(super) fn chosen(&self) -> Vec<Interface> {
        let machine = self.machine.borrow();
        let carries =
            |interface: &&Interface| self.is_chosen(interface) && !machine.barred.contains_key(&interface.name);
        machine.interfaces.iter().filter(carries).cloned().collect()
    }

    /// Whether a network must carry no path.
    pub(super) fn is_barred(&self, name: &str) -> bool {
        self.machine.borrow().barred.contains_key(name)
    }

    /// What the networks have carried and may carry.
    pub(super) fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    /// Every network of the machine, and whether it carries a path.
    ///
    /// # Errors
    /// When the system does not tell.
    pub(super) fn all(&self) -> std::io::Result<Vec<(Interface, bool)>> {
        let all = self.platform.interfaces()?;
        Ok(all.into_iter().map(|interface| (interface.clone(), self.is_chosen(&interface))).collect())
    }

    /// Why none of the interfaces is of use.
    pub(super) fn nothing(&self) -> SessionError {
        let machine = self.machine.borrow();
        let chosen: Vec<_> = machine.interfaces.iter().filter(|interface| self.is_chosen(interface)).collect();
        let barred =
            chosen.iter().filter_map(|interface| Some((&interface.name, machine.barred.get(&interface.name)?)));
        let barred: Vec<_> = barred.map(|(name, bar)| format!("{name}: {bar}")).collect();
        if !barred.is_empty() && barred.len() == chosen.len() {
            return SessionError::NoNetwork(barred.join("; "));
        }
        SessionError::NoNetwork(machine.problem.clone().unwrap_or_else(|| self.reason(&machine.interfaces, &chosen)))
    }

    /// The machine itself.
    pub(super) fn platform(&self) -> &Arc<dyn Platform> {
        &self.platform
    }

    /// Opens the socket of a way.
    pub(super) fn open(&self, way: &Way) -> std::io::Result<PathSpec> {
        let bound = self.platform.bind(&way.interface, way.remote)?;
        let bound = self.accounts.measure(&way.interface.name, bound);
        Ok(PathSpec { interface: way.interface.name.clone(), socket: bound.socket, remote: bound.remote })
    }

    fn is_chosen(&self, interface: &Interface) -> bool {
        interface.up && is_of_use(interface, &self.names)
    }

    fn reason(&self, all: &[Interface], chosen: &[&Interface]) -> String {
        let names = |interfaces: &mut dyn Iterator<Item = &Interface>| {
            interfaces.map(|interface| interface.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        if !chosen.is_empty() {
            return format!("{} has no address of the relay's kind", names(&mut chosen.iter().copied()));
        }
        let up = names(&mut all.iter().filter(|interface| interface.up));
        if up.is_empty() {
            "none is up".to_owned()
        } else if self.names.is_empty() {
            format!("none leads outside; name one to use it anyway, up are: {up}")
        } else {
            format!("{} is not there or down; up are: {up}", self.names.join(", "))
        }
    }
}

/// Whether an interface is one that its user may mean.
fn is_of_use(interface: &Interface, names: &[String]) -> bool {
    if names.is_empty() { interface.external } else { names.contains(&interface.name) }
}

/// What it takes to look at the machine.
struct Looker {
    platform: Arc<dyn Platform>,
    names: Vec<String>,
    accounts: Arc<Accounts>,
}

impl Looker {
    fn look(&self, wakes: u64) -> Machine {
        let (interfaces, problem) = match self.platform.interfaces() {
            Ok(interfaces) => (interfaces, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let of_use = interfaces.iter().filter(|interface| is_of_use(interface, &self.names));
        self.accounts.see(of_use.map(|interface| (interface.name.as_str(), interface.kind)));
        let bar = |interface: &Interface| Some((interface.name.clone(), self.accounts.bar(&interface.name)?));
        let barred = interfaces.iter().filter_map(bar).collect();
        Machine { interfaces, barred, problem, wakes }
    }
}

/// Looks at the machine whenever it may have changed, until nobody listens.
async fn watch(looker: Looker, sender: watch::Sender<Machine>) {
    let platform = &looker.platform;
    let mut rulings = looker.accounts.rulings();
    let mut changes = platform.watch().inspect_err(|error| tracing::warn!(%error, "networks cannot be watched")).ok();
    let mut sleeper = Sleeper::new(platform.suspended(), Instant::now());
    let mut look_at = Instant::now() + LOOK_AGAIN;
    let mut wakes = 0;
    loop {
        let next_second = Instant::now() + wake::LOOK;
        tokio::select! {
            biased;
            () = changed(&mut changes) => {
                sleep(CALM).await;
                look_at = Instant::now();
            }
            Ok(()) = rulings.changed() => look_at = Instant::now(),
            () = sleep_until(look_at.min(next_second)) => {}
        }
        let now = Instant::now();
        if let Some(slept) = sleeper.look(platform.suspended(), now) {
            tracing::info!(slept_s = slept.as_secs(), "awake again");
            wakes += 1;
            look_at = now;
        }
        if now >= look_at {
            look_at = now + LOOK_AGAIN;
            rulings.mark_unchanged();
            let seen = looker.look(wakes);
            sender.send_if_modified(|known| {
                let news = *known != seen;
                *known = seen;
                news
            });
        }
        if sender.is_closed() {
            return;
        }
    }
}

async fn changed(changes: &mut Option<Changes>) {
    match changes {
        Some(changes) => changes.changed().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::IpAddr;

    use super::*;
    use crate::platform::{Bound, InterfaceKind, Scripted};

    fn interface(name: &str, address: &str, external: bool) -> Interface {
        let addresses = vec![address.parse::<IpAddr>().unwrap()];
        Interface { name: name.to_owned(), index: 1, kind: InterfaceKind::Other, addresses, up: true, external }
    }

    fn scripted(interfaces: Vec<Interface>) -> Scripted {
        let no_socket = |_| Err::<Bound, _>(io::Error::from(io::ErrorKind::Unsupported));
        Scripted::new(interfaces.into_iter().map(|interface| (interface, Arc::new(no_socket) as _)).collect())
    }

    fn networks(interfaces: Vec<Interface>, names: &[&str]) -> Networks {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        over(scripted(interfaces), names)
    }

    fn over(platform: Scripted, names: Vec<String>) -> Networks {
        let platform: Arc<dyn Platform> = Arc::new(platform);
        Networks::new(Arc::clone(&platform), names, Accounts::unknown(platform))
    }

    fn chosen(networks: &Networks) -> Vec<String> {
        networks.chosen().into_iter().map(|interface| interface.name).collect()
    }

    #[tokio::test]
    async fn by_default_every_external_network_carries_a_path_and_loopback_none() {
        let all = vec![
            interface("lo", "127.0.0.1", false),
            interface("wifi0", "198.51.100.7", true),
            interface("cell0", "2001:db8:1::7", true),
        ];
        assert_eq!(chosen(&networks(all, &[])), ["wifi0", "cell0"]);
    }

    #[tokio::test]
    async fn named_networks_are_used_and_no_others() {
        let all = vec![interface("lo", "127.0.0.1", false), interface("wifi0", "198.51.100.7", true)];
        assert_eq!(chosen(&networks(all.clone(), &["lo"])), ["lo"]);
        let error = networks(all, &["wlan9"]).nothing().to_string();
        assert!(error.contains("wlan9 is not there or down; up are: lo, wifi0"), "{error}");
    }

    #[tokio::test]
    async fn a_network_that_is_never_to_be_used_carries_no_path_and_is_told_if_it_is_the_only_one() {
        let all = vec![interface("wifi0", "198.51.100.7", true), interface("cell0", "198.51.100.8", true)];
        let both = networks(all, &[]);
        let mut machine = both.subscribe();
        both.accounts.set("cell0", "role", "never").unwrap();
        machine.changed().await.unwrap();
        assert_eq!(chosen(&both), ["wifi0"]);
        both.accounts.set("wifi0", "role", "never").unwrap();
        machine.changed().await.unwrap();
        let error = both.nothing().to_string();
        assert!(error.contains("wifi0: never used, as set; cell0: never used, as set"), "{error}");
        assert!(both.accounts.reset("wifi0"));
        machine.changed().await.unwrap();
        assert_eq!(chosen(&both), ["wifi0"]);
    }

    #[tokio::test]
    async fn a_machine_without_a_way_outside_is_told_what_it_could_use() {
        let error = networks(vec![interface("lo", "127.0.0.1", false)], &[]).nothing();
        assert!(error.to_string().contains("name one to use it anyway, up are: lo"), "{error}");
        let error = networks(Vec::new(), &[]).nothing();
        assert!(error.to_string().ends_with("none is up"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_reported_once_it_has_calmed_down_and_nothing_new_not_at_all() {
        let platform = scripted(Vec::new());
        let networks = over(platform.clone(), Vec::new());
        let mut machine = networks.subscribe();
        tokio::task::yield_now().await;
        let start = Instant::now();
        let no_socket = |_| Err::<Bound, _>(io::Error::from(io::ErrorKind::Unsupported));
        platform.set(vec![(interface("wifi0", "198.51.100.7", true), Arc::new(no_socket))]);
        machine.changed().await.unwrap();
        assert_eq!(start.elapsed(), CALM);
        let nothing = tokio::time::timeout(4 * LOOK_AGAIN, machine.changed()).await;
        assert!(nothing.is_err());
    }

    /// SLEEP-1
    #[tokio::test(start_paused = true)]
    async fn a_sleep_is_reported_within_a_second() {
        let platform = scripted(Vec::new());
        let networks = over(platform.clone(), Vec::new());
        let mut machine = networks.subscribe();
        // The watching task begins.
        tokio::task::yield_now().await;
        platform.suspend(Duration::from_secs(180));
        let start = Instant::now();
        machine.wait_for(|machine| machine.wakes == 1).await.unwrap();
        assert!(start.elapsed() <= wake::LOOK, "{:?}", start.elapsed());
    }
}
