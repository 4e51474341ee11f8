//! Records of the command window, built and read through the tables of `mprdma_spec`.

use mprdma_spec::command::{qp_image, qp_status, QpState};
use mprdma_spec::csr::CMD_WINDOW_BYTES;
use mprdma_spec::layout::Field;

use super::attr::{state_name, AddressHandle, QpStatus, RtsAttr};
use super::parameters::{MultiPath, Parameters, Timers};
use crate::control::Window;
use crate::port::{Gid, Mac};

/// A record being filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image(pub Window);

impl Image {
    pub const fn new() -> Self {
        Self([0; CMD_WINDOW_BYTES as usize])
    }

    pub fn set(&mut self, field: Field, value: impl Into<u64>) -> &mut Self {
        field.set(&mut self.0, value.into());
        self
    }

    pub fn get(&self, field: Field) -> u64 {
        field.get(&self.0)
    }

    /// Sets a byte-aligned field from bytes, first on the wire in its lowest bits.
    fn set_bytes(&mut self, field: Field, bytes: &[u8]) -> &mut Self {
        debug_assert!(field.lsb % 8 == 0 && field.bits == 8 * bytes.len());
        self.0[field.lsb / 8..][..bytes.len()].copy_from_slice(bytes);
        self
    }

    fn set_mac(&mut self, field: Field, mac: Mac) -> &mut Self {
        self.set_bytes(field, &mac.0)
    }

    fn set_gid(&mut self, field: Field, gid: Gid) -> &mut Self {
        self.set_bytes(field, &gid.octets())
    }

    /// Fills the address vector of a [`qp_image`].
    pub fn set_address(&mut self, address: &AddressHandle) -> &mut Self {
        let tci = address
            .vlan
            .map_or(0, |vlan| vlan.id | u16::from(vlan.priority) << 13);
        let flags = u64::from(address.dgid.is_ipv6()) | u64::from(address.vlan.is_some()) << 1;
        self.set_mac(qp_image::DMAC, address.dmac)
            .set(qp_image::PORT_FLAGS, flags)
            .set(qp_image::TRAFFIC_CLASS, address.traffic_class)
            .set(qp_image::VLAN_TCI, tci)
            .set(qp_image::HOP_LIMIT, address.hop_limit)
            .set(qp_image::FLOW_LABEL, address.flow_label)
            .set_gid(qp_image::SGID, address.sgid)
            .set_gid(qp_image::DGID, address.dgid)
    }

    /// Fills the sender half and the multi-path parameters of a [`qp_image`].
    pub fn set_sender(&mut self, attr: &RtsAttr) -> &mut Self {
        self.set(qp_image::SQ_PSN, attr.sq_psn)
            .set_timers(&attr.timers())
            .set_paths(&attr.multi_path)
    }

    /// Fills timers and retry counts of a [`qp_image`].
    pub fn set_timers(&mut self, timers: &Timers) -> &mut Self {
        self.set(qp_image::RTO_FLOOR, timers.rto_floor)
            .set(qp_image::RETRY_CNT, timers.retry_cnt)
            .set(qp_image::RNR_RETRY, timers.rnr_retry)
    }

    /// Fills the multi-path parameters of a [`qp_image`].
    pub fn set_paths(&mut self, paths: &MultiPath) -> &mut Self {
        self.set(qp_image::BURST_INTERVAL, paths.burst_interval)
            .set(qp_image::DELTA, paths.delta)
            .set(qp_image::VP_BASE, paths.vp_base)
            .set(qp_image::VP_COUNT, paths.vp_count)
            .set(qp_image::PROBE, paths.probe)
            .set(qp_image::INITIAL_WINDOW, paths.initial_window)
            .set(qp_image::ALPHA, paths.alpha)
            .set(qp_image::CWND_MAX, paths.cwnd_max)
            .set(qp_image::HOLE_REPAIR, paths.hole_repair)
            .set(qp_image::VP_RECYCLE, paths.vp_recycle)
    }

    /// The parameters in a [`qp_image`].
    pub fn parameters(&self) -> Parameters {
        let get = |field: Field| self.get(field) as u32;
        Parameters {
            path_mtu: 128 << get(qp_image::MTU),
            timers: Timers {
                rto_floor: get(qp_image::RTO_FLOOR),
                retry_cnt: get(qp_image::RETRY_CNT) as u8,
                rnr_retry: get(qp_image::RNR_RETRY) as u8,
            },
            multi_path: MultiPath {
                vp_base: get(qp_image::VP_BASE),
                vp_count: get(qp_image::VP_COUNT),
                delta: get(qp_image::DELTA),
                probe: get(qp_image::PROBE),
                initial_window: get(qp_image::INITIAL_WINDOW),
                cwnd_max: get(qp_image::CWND_MAX),
                burst_interval: get(qp_image::BURST_INTERVAL),
                alpha: get(qp_image::ALPHA),
                hole_repair: get(qp_image::HOLE_REPAIR) != 0,
                vp_recycle: get(qp_image::VP_RECYCLE) != 0,
            },
        }
    }
}

/// Microseconds of one 64 ns tick.
const TICK_US: f64 = 0.064;

/// Reads a [`qp_status`].
pub fn status(record: &Window) -> QpStatus {
    let get = |field: Field| field.get(record);
    let state = |field: Field| match get(field) {
        0 => state_name(QpState::Reset),
        1 => state_name(QpState::Init),
        2 => state_name(QpState::Rtr),
        3 => state_name(QpState::Rts),
        4 => state_name(QpState::Error),
        _ => "unknown",
    };
    QpStatus {
        state: state(qp_status::STATE),
        rx_state: state(qp_status::RX_STATE),
        recovering: get(qp_status::RECOVERING) != 0,
        cwnd: get(qp_status::CWND) as f64 / 2.0,
        inflate: get(qp_status::INFLATE),
        snd_una: get(qp_status::SND_UNA),
        snd_nxt: get(qp_status::SND_NXT),
        snd_lim: get(qp_status::SND_LIM),
        snd_ooh: get(qp_status::SND_OOH),
        srtt_us: get(qp_status::SRTT) as f64 / 8.0 * TICK_US,
        rttvar_us: get(qp_status::RTTVAR) as f64 / 4.0 * TICK_US,
        recovery: get(qp_status::RECOVERY),
        snd_retx: get(qp_status::SND_RETX),
        retries: get(qp_status::RETRIES),
        backoff: get(qp_status::BACKOFF),
        last_vp: get(qp_status::LAST_VP),
        rcv_nxt: get(qp_status::RCV_NXT),
        msn: get(qp_status::MSN),
        received: get(qp_status::RECEIVED),
        rcv_wsn: get(qp_status::RCV_WSN),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::attr::Vlan;
    use super::*;

    #[test]
    fn addresses_lie_in_wire_order() {
        let gid = |text: &str| Gid::from(text.parse::<IpAddr>().unwrap());
        let mut image = Image::new();
        image.set_address(&AddressHandle {
            dmac: "02:11:22:33:44:55".parse().unwrap(),
            sgid: gid("10.0.0.1"),
            dgid: gid("10.0.0.2"),
            vlan: Some(Vlan {
                id: 0x123,
                priority: 5,
            }),
            hop_limit: 64,
            traffic_class: 0x68,
            flow_label: 0,
        });
        assert_eq!(image.get(qp_image::DMAC), 0x5544_3322_1102);
        assert_eq!(
            image.0[40..56],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2]
        );
        assert_eq!(image.get(qp_image::PORT_FLAGS), 2);
        assert_eq!(image.get(qp_image::VLAN_TCI), 0xa123);
    }

    #[test]
    fn parameters_come_back_as_they_went_in() {
        let attr = RtsAttr {
            timeout: 9,
            retry_cnt: 3,
            rnr_retry: 5,
            multi_path: MultiPath {
                vp_base: 1000,
                vp_count: 12,
                delta: 64,
                probe: 7,
                initial_window: 20,
                cwnd_max: 300,
                burst_interval: 17,
                alpha: 8,
                hole_repair: false,
                vp_recycle: true,
            },
            ..RtsAttr::new(0)
        };
        let mut image = Image::new();
        image.set(qp_image::MTU, 3u64).set_sender(&attr);
        let parameters = image.parameters();
        assert_eq!(parameters.path_mtu, 1024);
        assert_eq!(parameters.timers, attr.timers());
        assert_eq!(parameters.multi_path, attr.multi_path);
    }

    #[test]
    fn status_has_units() {
        let mut image = Image::new();
        image
            .set(qp_status::STATE, 3u64)
            .set(qp_status::CWND, 25u64)
            .set(qp_status::SRTT, 8000u64);
        let status = status(&image.0);
        assert_eq!(
            (status.state, status.rx_state, status.cwnd, status.srtt_us),
            ("RTS", "RESET", 12.5, 64.0)
        );
    }
}
