//! Certificates for one run: nothing is kept, no key is ever committed.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

static MADE: AtomicUsize = AtomicUsize::new(0);

/// An authority, and a server's certificate of it.
pub struct Authority {
    /// For the client's configuration, as it stands in a kubeconfig's `certificate-authority-data`.
    pub root: Vec<u8>,
    /// For a server that is reached under the names given.
    pub server: Arc<ServerConfig>,
}

/// Makes an authority and a certificate of it for `names` (host names or addresses). `protocols` are offered by ALPN.
pub fn authority(names: &[&str], protocols: &[&[u8]]) -> Authority {
    let key = KeyPair::generate().expect("a key");
    let mut root = CertificateParams::new(Vec::<String>::new()).expect("no names");
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    // Each of a name of its own, as clusters' are.
    root.distinguished_name.push(DnType::CommonName, format!("authority {}", MADE.fetch_add(1, Ordering::Relaxed)));
    let certificate = root.self_signed(&key).expect("a root");
    let issuer = Issuer::new(root, key);

    let key = KeyPair::generate().expect("a key");
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    let leaf = CertificateParams::new(names).expect("names").signed_by(&key, &issuer).expect("a certificate");
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], private)
        .expect("a key that fits");
    server.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    Authority { root: certificate.der().to_vec(), server: Arc::new(server) }
}
