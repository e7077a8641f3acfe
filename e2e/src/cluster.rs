//! etcd and kube-apiserver as children of this process, on loopback, on ports that were free.
//!
//! Whoever ends this process ends them: they are killed when [`Cluster`] is dropped, by a panic too; on SIGINT and
//! SIGTERM the program ends in order; and for every other end the kernel was asked to kill a child whose parent dies.
//! That parent is the thread which started the child, so children are started by the main thread only.

use crate::{api::Api, certs};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use std::{
    fs::{self, File, OpenOptions},
    io,
    net::TcpListener,
    os::unix::{fs::DirBuilderExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Set by SIGINT and SIGTERM; looked at wherever something takes long.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Ends the program, in order, when it was asked to end.
pub fn check_interrupted() {
    assert!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
}

/// Waits, and looks for an interruption meanwhile.
pub fn rest(d: Duration) {
    let end = Instant::now() + d;
    loop {
        check_interrupted();
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// Starts a program that does not outlive this process. To be called by the main thread.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let end_with_us = || set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from);
    // SAFETY: the closure makes one system call, allocates nothing and takes no lock, which is what may be done between
    // fork and exec.
    unsafe { command.pre_exec(end_with_us) }.spawn()
}

/// A child that is killed when it is dropped.
pub struct Running(Child);

impl Running {
    pub fn start(command: &mut Command) -> io::Result<Self> {
        spawn(command).map(Self)
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).expect("a child has a pid");
        // It has not been waited for, so its number is not another's.
        kill_process(pid, signal).expect("a child can be signalled");
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
    }

    pub fn wait(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while !self.has_ended() {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        true
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder that goes with its owner. The last to go, so after whoever writes to it.
pub struct Scratch(pub PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::env::var_os("E2E_KEEP").is_some() {
            eprintln!("kept: {}", self.0.display());
        } else if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("{} could not be removed: {e}", self.0.display());
        }
    }
}

pub struct Cluster {
    api: Option<Running>,
    etcd: Option<Running>,
    servers: PathBuf,
    api_port: u16,
    etcd_ports: (u16, u16),
    /// What the API server is started with besides the usual.
    flags: Vec<String>,
    pub admin: Api,
    dir: Scratch,
}

fn free_ports() -> io::Result<(u16, u16, u16)> {
    let held: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let ports: Vec<u16> = held.iter().map(|l| Ok(l.local_addr()?.port())).collect::<io::Result<_>>()?;
    match ports[..] {
        [a, b, c] => Ok((a, b, c)),
        _ => unreachable!("three were asked for"),
    }
}

impl Cluster {
    /// Both servers, ready.
    pub fn start(servers: &Path, flags: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("informer-e2e-{}-{:08x}", std::process::id(), fastrand::u32(..)));
        fs::DirBuilder::new().mode(0o700).create(&dir).expect("a folder can be made where temporary files go");
        let dir = Scratch(dir);
        certs::make(&dir.0).expect("certificates can be made");
        let (api_port, a, b) = free_ports().expect("ports are free on loopback");
        let admin = Api::new(&dir.0, api_port, &certs::ADMIN);
        let mut cluster = Self {
            api: None,
            etcd: None,
            servers: servers.to_owned(),
            api_port,
            etcd_ports: (a, b),
            flags: flags.iter().map(|&f| f.to_owned()).collect(),
            admin,
            dir,
        };
        cluster.start_etcd();
        cluster.start_api();
        cluster
    }

    pub fn dir(&self) -> &Path {
        &self.dir.0
    }

    pub fn api_port(&self) -> u16 {
        self.api_port
    }

    pub fn etcd_port(&self) -> u16 {
        self.etcd_ports.0
    }

    fn log(&self, name: &str) -> (Stdio, Stdio) {
        let open = || OpenOptions::new().create(true).append(true).open(self.dir().join(name));
        let file: File = open().expect("a log can be written");
        let again = file.try_clone().expect("a descriptor can be doubled");
        (file.into(), again.into())
    }

    pub fn start_etcd(&mut self) {
        let (client, peer) =
            (format!("http://127.0.0.1:{}", self.etcd_ports.0), format!("http://127.0.0.1:{}", self.etcd_ports.1));
        let (out, err) = self.log("etcd.log");
        let mut command = Command::new(self.servers.join("etcd"));
        command.args(["--name", "e2e", "--log-level", "warn", "--unsafe-no-fsync"]);
        command.arg("--data-dir").arg(self.etcd_data());
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("e2e={peer}")]);
        self.etcd = Some(Running::start(command.stdin(Stdio::null()).stdout(out).stderr(err)).expect("etcd can be started"));
        let end = Instant::now() + Duration::from_secs(60);
        while self.etcd_post("/v3/maintenance/status", "{}").is_err() {
            self.must_live(end);
        }
    }

    fn etcd_data(&self) -> PathBuf {
        self.dir().join("etcd")
    }

    /// Starts the API server and waits until it is ready.
    pub fn start_api(&mut self) {
        self.launch_api();
        self.await_ready();
    }

    /// Starts the API server.
    pub fn launch_api(&mut self) {
        let (out, err) = self.log("apiserver.log");
        let dir = self.dir().to_owned();
        let mut command = Command::new(self.servers.join("kube-apiserver"));
        command.arg("--etcd-servers").arg(format!("http://127.0.0.1:{}", self.etcd_ports.0));
        command.args(["--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1"]);
        command.args(["--secure-port", &self.api_port.to_string(), "--endpoint-reconciler-type", "none"]);
        for (flag, file) in [
            ("--tls-cert-file", "server.crt"),
            ("--tls-private-key-file", "server.key"),
            ("--client-ca-file", "client-ca.crt"),
            ("--service-account-key-file", "sa.pub"),
            ("--service-account-signing-key-file", "sa.key"),
            ("--cert-dir", "made"),
        ] {
            command.arg(flag).arg(dir.join(file));
        }
        command.args(["--service-account-issuer", "https://kubernetes.default.svc", "--anonymous-auth=false"]);
        command.args(["--service-cluster-ip-range", "10.0.0.0/24", "--authorization-mode", "RBAC"]);
        // There are no controllers, so nothing may wait for what they would make.
        command.args(["--disable-admission-plugins", "ServiceAccount,DefaultStorageClass,StorageObjectInUseProtection"]);
        // As text, so that the judge can read etcd.
        command.args(["--storage-media-type", "application/json", "--profiling=false", "--v=1"]);
        command.args(&self.flags);
        self.api =
            Some(Running::start(command.stdin(Stdio::null()).stdout(out).stderr(err)).expect("kube-apiserver can be started"));
    }

    pub fn await_ready(&mut self) {
        let end = Instant::now() + Duration::from_secs(120);
        while self.admin.get("/readyz").is_err() {
            self.must_live(end);
        }
    }

    /// Neither server has ended, and there is time left; waits a little.
    fn must_live(&mut self, end: Instant) {
        check_interrupted();
        for (name, child) in [("etcd", &mut self.etcd), ("apiserver", &mut self.api)] {
            if child.as_mut().is_some_and(Running::has_ended) || Instant::now() >= end {
                let log = fs::read_to_string(self.dir.0.join(format!("{name}.log"))).unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(15).collect();
                panic!("{name} does not serve; the end of its log, backwards:\n{}", lines.join("\n"));
            }
        }
        thread::sleep(Duration::from_millis(20));
    }

    /// From the next start on.
    pub fn set_flags(&mut self, flags: &[&str]) {
        self.flags = flags.iter().map(|&f| f.to_owned()).collect();
    }

    /// As when the machine fails: connections break at once.
    pub fn kill_api(&mut self) {
        self.api = None;
    }

    /// As when it is updated. Says whether it ended in time.
    pub fn stop_api(&mut self, limit: Duration) -> bool {
        let Some(mut api) = self.api.take() else { return true };
        api.signal(Signal::TERM);
        api.wait(limit)
    }

    /// Neither answers nor hangs up.
    pub fn pause_api(&self) {
        self.api.as_ref().expect("it runs").signal(Signal::STOP);
    }

    pub fn resume_api(&self) {
        self.api.as_ref().expect("it runs").signal(Signal::CONT);
    }

    /// Whether it is still as [`Cluster::pause_api`] left it, and nobody else continued it.
    pub fn is_paused(&self) -> bool {
        let pid = self.api.as_ref().expect("it runs").pid();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name, in parentheses, may hold spaces; the state is behind it.
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }

    pub fn kill_etcd(&mut self) {
        self.etcd = None;
    }

    /// Copies etcd's data, while neither server runs.
    pub fn back_up(&self) {
        assert!(self.api.is_none() && self.etcd.is_none(), "the data would change meanwhile");
        copy(&self.etcd_data(), &self.dir().join("backup")).expect("etcd's data can be copied");
    }

    /// Puts the copy in the place of the data, while neither server runs.
    pub fn restore(&self) {
        assert!(self.api.is_none() && self.etcd.is_none(), "the data is in use");
        fs::remove_dir_all(self.etcd_data()).expect("etcd's data can be removed");
        fs::rename(self.dir().join("backup"), self.etcd_data()).expect("the copy can take its place");
    }

    /// A call of etcd's own gateway.
    pub fn etcd_post(&self, path: &str, body: &str) -> Result<serde_json::Value, String> {
        crate::etcd::post(self.etcd_port(), path, body)
    }

    /// Drops etcd's history up to now.
    pub fn compact(&self) {
        let revision = crate::etcd::revision(self.etcd_port());
        let body = format!(r#"{{"revision":"{revision}","physical":true}}"#);
        self.etcd_post("/v3/kv/compaction", &body).expect("etcd compacts");
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        } else {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
