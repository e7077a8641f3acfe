//! Throw-away certificates: an authority for the server, one for its clients, and whom they vouch for. Good for two
//! days, in a folder that only this user can read.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::{error::Error, fs, path::Path, time::SystemTime};

/// A user, as the server sees it.
pub struct User {
    pub name: &'static str,
    /// `system:masters` may do everything, and no limit of requests holds for it.
    pub group: &'static str,
}

/// Does the writing.
pub const ADMIN: User = User { name: "e2e-admin", group: "system:masters" };
/// Runs the informers: may list and watch, as long as it is bound to the role that says so.
pub const WATCHER: User = User { name: "e2e-watcher", group: "e2e" };
/// Asks too much.
pub const FLOODER: User = User { name: "e2e-flooder", group: "e2e" };

type Signer = Issuer<'static, KeyPair>;

/// Writes `server-ca.crt`, `client-ca.crt`, `server.crt`, `server.key`, `sa.pub`, `sa.key`, and a `.crt` and `.key` for
/// each user.
pub fn make(dir: &Path) -> Result<(), Box<dyn Error>> {
    let server_ca = authority(dir, "server-ca")?;
    let client_ca = authority(dir, "client-ca")?;
    let names = ["localhost", "127.0.0.1", "10.0.0.1", "kubernetes.default.svc"].map(str::to_owned).to_vec();
    leaf(dir, "server", &server_ca, names, "kube-apiserver", None, ExtendedKeyUsagePurpose::ServerAuth)?;
    for user in [ADMIN, WATCHER, FLOODER] {
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        leaf(dir, user.name, &client_ca, Vec::new(), user.name, Some(user.group), usage)?;
    }
    let service_accounts = KeyPair::generate()?;
    fs::write(dir.join("sa.key"), service_accounts.serialize_pem())?;
    fs::write(dir.join("sa.pub"), service_accounts.public_key_pem())?;
    Ok(())
}

fn params(names: Vec<String>, common: &str, group: Option<&str>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, common);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    let day = std::time::Duration::from_secs(86_400);
    let now = SystemTime::now();
    (params.not_before, params.not_after) = ((now - day).into(), (now + 2 * day).into());
    Ok(params)
}

fn authority(dir: &Path, name: &str) -> Result<Signer, Box<dyn Error>> {
    let mut params = params(Vec::new(), name, None)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    fs::write(dir.join(format!("{name}.crt")), params.self_signed(&key)?.pem())?;
    Ok(Issuer::new(params, key))
}

fn leaf(
    dir: &Path,
    file: &str,
    by: &Signer,
    names: Vec<String>,
    common: &str,
    group: Option<&str>,
    usage: ExtendedKeyUsagePurpose,
) -> Result<(), Box<dyn Error>> {
    let mut params = params(names, common, group)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate()?;
    fs::write(dir.join(format!("{file}.crt")), params.signed_by(&key, by)?.pem())?;
    fs::write(dir.join(format!("{file}.key")), key.serialize_pem())?;
    Ok(())
}
