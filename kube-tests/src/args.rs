//! The command line of the examples.

/// What may be asked for.
#[derive(Clone, Debug)]
pub struct Args {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// How long it runs.
    pub seconds: u64,
    /// A server in this process instead of a cluster.
    pub fake: bool,
    /// `GROUP/VERSION/KIND/PLURAL`.
    pub kind: Option<String>,
}

impl Args {
    /// Reads the command line.
    ///
    /// # Errors
    /// What is not understood.
    pub fn parse() -> Result<Self, String> {
        let mut args = Self { namespace: None, seconds: 10, fake: false, kind: None };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} wants a value"));
            match word.as_str() {
                "--namespace" => args.namespace = Some(value()?),
                "--seconds" => args.seconds = value()?.parse().map_err(|e| format!("--seconds: {e}"))?,
                "--kind" => args.kind = Some(value()?),
                "--fake" => args.fake = true,
                _ => return Err(format!("{word} is not understood: --namespace NS --seconds N --kind G/V/K/P --fake")),
            }
        }
        Ok(args)
    }
}
