//! What can be seen only where no TLS is compiled in. All else is tested in `kube-tests`, which has chosen one.

use super::Io;
use crate::source::SourceErrorKind;

#[test]
fn https_without_tls_says_which_features_to_add() {
    let io = Io::shared().unwrap();
    let config = ::kube::Config::new("https://127.0.0.1:6443".parse().unwrap());
    match io.client(config) {
        // Somebody has chosen one for the whole build.
        Ok(_) => assert!(cfg!(feature = "kube-http2"), "TLS came from nowhere"),
        Err(error) => {
            assert_eq!(*error.kind(), SourceErrorKind::Other);
            assert!(error.to_string().contains("`rustls-tls` and `ring`"), "{error}");
        }
    }
}
