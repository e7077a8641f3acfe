//! How long to wait before asking again.
//!
//! Two ladders: one for failures in general, one for refused connections, whose rungs stay low because asking costs
//! nobody anything when nobody listens (and one who is just coming back little). Both go back to their first rung when no failure came for [`Backoff::reset`],
//! counted from the end of the last wait of either. Jitter is drawn on top of a rung and never feeds back into it.

use crate::sync::Instant;
use std::time::Duration;

/// The waits between requests that fail.
///
/// Rung n is `base * factor^n`, at most `cap`; the wait is drawn from `[rung, rung * (1 + jitter))`. client-go:
/// `wait.Backoff` with the same numbers, but there a failing source falls back to the first rung every two minutes.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    /// The first rung.
    pub base: Duration,
    /// From rung to rung. Below one counts as one.
    pub factor: f64,
    /// The highest rung.
    pub cap: Duration,
    /// How much of a rung is added at most, by chance. Zero for waits that repeat exactly.
    pub jitter: f64,
    /// The longest wait, jitter included, when nobody listens at the server's address, or nobody did a moment ago and now
    /// somebody says no.
    pub refused_cap: Duration,
    /// Time without a failure, from the end of the last wait, after which waits begin at the first rung again.
    pub reset: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(800),
            factor: 2.0,
            cap: Duration::from_secs(30),
            jitter: 1.0,
            refused_cap: Duration::from_secs(2),
            reset: Duration::from_secs(120),
        }
    }
}

/// Where on the two ladders a reflector stands.
#[derive(Debug)]
pub(super) struct Steps {
    backoff: Backoff,
    general: u32,
    refused: u32,
    last_wait_ended: Option<Instant>,
}

impl Steps {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self { backoff, general: 0, refused: 0, last_wait_ended: None }
    }

    /// One step for a failure in general; at least `least`, which is what the server asked for.
    pub(super) fn step(&mut self, now: Instant, rng: &mut fastrand::Rng, least: Option<Duration>) -> Duration {
        self.reset_if_quiet(now);
        let rung = self.rung(self.general, self.backoff.cap);
        self.general = self.general.saturating_add(1);
        let wait = rung.saturating_add(scaled(rung, self.jitter() * rng.f64()));
        self.waits(now, wait.max(least.unwrap_or_default()))
    }

    /// One step for a refused connection. Jitter stays below the cap: it widens downwards when there is no room above.
    pub(super) fn refused_step(&mut self, now: Instant, rng: &mut fastrand::Rng) -> Duration {
        self.reset_if_quiet(now);
        let cap = self.backoff.refused_cap;
        let rung = self.rung(self.refused, cap);
        self.refused = self.refused.saturating_add(1);
        let top = scaled(rung, 1.0 + self.jitter()).min(cap);
        let bottom = scaled(top, 1.0 / (1.0 + self.jitter()));
        let wait = bottom.saturating_add(scaled(top.saturating_sub(bottom), rng.f64()));
        self.waits(now, wait)
    }

    fn reset_if_quiet(&mut self, now: Instant) {
        if self.last_wait_ended.is_some_and(|end| now.since(end) >= self.backoff.reset) {
            (self.general, self.refused) = (0, 0);
        }
    }

    fn waits(&mut self, now: Instant, wait: Duration) -> Duration {
        self.last_wait_ended = now.checked_add(wait).or(self.last_wait_ended);
        wait
    }

    fn rung(&self, n: u32, cap: Duration) -> Duration {
        // Past 1100 doublings any factor above one has reached any cap, or never will.
        let growth = self.backoff.factor.max(1.0).powi(n.min(1100) as i32);
        if self.backoff.base.is_zero() { Duration::ZERO } else { scaled(self.backoff.base, growth).min(cap) }
    }

    fn jitter(&self) -> f64 {
        self.backoff.jitter.max(0.0)
    }
}

/// `d * by`, the longest duration when that cannot be expressed.
fn scaled(d: Duration, by: f64) -> Duration {
    Duration::try_from_secs_f64(d.as_secs_f64() * by).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Steps};
    use crate::sync::Instant;
    use proptest::prelude::*;
    use std::time::Duration;

    fn at(s: f64) -> Instant {
        Instant::from_start(Duration::from_secs_f64(s))
    }

    fn exact() -> Steps {
        Steps::new(Backoff { jitter: 0.0, ..Backoff::default() })
    }

    #[test]
    fn a_source_that_never_recovers_is_asked_ever_more_rarely_and_then_every_30_s() {
        let (mut steps, mut rng, mut now, mut asked) = (exact(), fastrand::Rng::with_seed(1), 0.0, vec![]);
        while now < 400.0 {
            asked.push((now * 10.0_f64).round() / 10.0);
            now += steps.step(at(now), &mut rng, None).as_secs_f64();
        }
        assert_eq!(asked[..9], [0.0, 0.8, 2.4, 5.6, 12.0, 24.8, 50.4, 80.4, 110.4]);
        assert!(asked[9..].windows(2).all(|w| ((w[1] - w[0]) - 30.0).abs() < 1e-6), "never back to 0.8 s: {asked:?}");
    }

    #[test]
    fn two_minutes_without_a_failure_after_the_last_wait_begin_anew_and_not_a_moment_less() {
        let mut rng = fastrand::Rng::with_seed(1);
        for (quiet, expected) in [(119.9, 1.6), (120.0, 0.8)] {
            let mut steps = exact();
            let end = 50.0 + steps.step(at(50.0), &mut rng, None).as_secs_f64();
            assert_eq!(steps.step(at(end + quiet), &mut rng, None), Duration::from_secs_f64(expected));
        }
    }

    #[test]
    fn what_the_server_asks_for_is_a_minimum_and_its_end_is_what_quiet_counts_from() {
        let (mut steps, mut rng) = (exact(), fastrand::Rng::with_seed(1));
        assert_eq!(steps.step(at(0.0), &mut rng, Some(Duration::from_secs(60))), Duration::from_secs(60));
        assert_eq!(steps.step(at(179.0), &mut rng, Some(Duration::from_millis(1))), Duration::from_millis(1600));
    }

    #[test]
    fn refused_connections_stay_below_two_seconds_and_leave_the_other_ladder_alone() {
        let (mut steps, mut rng) = (exact(), fastrand::Rng::with_seed(1));
        let waits: Vec<_> = (0..5).map(|i| steps.refused_step(at(f64::from(i)), &mut rng).as_secs_f64()).collect();
        assert_eq!(waits, [0.8, 1.6, 2.0, 2.0, 2.0]);
        assert_eq!(steps.step(at(6.0), &mut rng, None), Duration::from_millis(800));
        // ... but they are failures: the other ladder does not take them for quiet.
        for s in 0..60 {
            steps.refused_step(at(7.0 + 3.0 * f64::from(s)), &mut rng);
        }
        assert_eq!(steps.step(at(187.0), &mut rng, None), Duration::from_millis(1600));
    }

    proptest! {
        #[test]
        fn waits_lie_between_the_rung_and_the_rung_with_all_its_jitter(seed: u64, n in 0u32..12, jitter in 0.0f64..2.0) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut steps = Steps::new(Backoff { jitter, ..Backoff::default() });
            let mut wait = Duration::ZERO;
            for _ in 0..=n {
                wait = steps.step(at(0.0), &mut rng, None);
            }
            let rung = (0.8 * f64::from(1u32 << n)).min(30.0);
            prop_assert!(wait.as_secs_f64() >= rung - 1e-6 && wait.as_secs_f64() <= rung * (1.0 + jitter) + 1e-6);
        }

        #[test]
        fn refused_waits_vary_and_never_pass_their_cap(seed: u64, jitter in 0.0f64..4.0) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut steps = Steps::new(Backoff { jitter, ..Backoff::default() });
            let waits: Vec<_> = (0..20).map(|_| steps.refused_step(at(0.0), &mut rng)).collect();
            prop_assert!(waits.iter().all(|w| *w <= Duration::from_secs(2) && *w >= Duration::from_millis(150)));
            prop_assert!(jitter < 0.01 || waits[3..].windows(2).any(|w| w[0] != w[1]));
        }

        #[test]
        fn no_settings_make_it_fail(base: u64, factor: f64, cap: u64, jitter: f64, seed: u64) {
            let (base, cap) = (Duration::from_nanos(base), Duration::from_nanos(cap));
            let mut steps = Steps::new(Backoff { base, factor, cap, jitter, ..Backoff::default() });
            let mut rng = fastrand::Rng::with_seed(seed);
            for _ in 0..5 {
                steps.step(at(0.0), &mut rng, None);
                steps.refused_step(at(0.0), &mut rng);
            }
        }
    }
}
