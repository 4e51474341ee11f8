//! PCI configuration space of a card: header, PCIe, MSI-X, power management and AER capabilities.

use mprdma_spec::config::{MSIX_VECTORS, PCI_CLASS, PCI_DEVICE, PCI_VENDOR};

/// Bytes of the whole space.
pub const BYTES: usize = 4096;
/// BAR that holds the MSI-X table and pending bits.
pub const MSIX_BAR: u32 = 4;
/// Bytes of that BAR.
pub const MSIX_BAR_BYTES: u64 = 0x2000;
/// Offset of the pending bits in it.
const PENDING_BITS: u32 = 0x1000;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
/// In the status register's upper byte: received master abort (PCIe base specification 7.5.1.1.4).
const MASTER_ABORT: u8 = 0x20;
/// In the same byte: what software clears by writing ones.
const STATUS_ERRORS: u8 = 0xf9;
const BAR0: usize = 0x10;
const BAR4: usize = 0x20;
const PCIE: usize = 0x40;
const MSIX: usize = 0x80;
const POWER: usize = 0x90;
/// Extended capabilities begin here (PCIe base specification 7.6).
const AER: usize = 0x100;
/// Device control register, in the PCIe capability.
const DEVICE_CONTROL: usize = PCIE + 8;
/// In the device control register's upper byte: initiate function level reset (PCIe base specification 7.5.3.4).
const FUNCTION_RESET: u8 = 0x80;

/// The space: what it reads as, and which bits can be written.
#[derive(Clone)]
pub struct ConfigSpace {
    bytes: Vec<u8>,
    writable: Vec<u8>,
}

impl ConfigSpace {
    /// As after power-on, with BAR0 of the given size (a power of two).
    pub fn new(bar0: u64) -> ConfigSpace {
        let mut c = ConfigSpace {
            bytes: vec![0; BYTES],
            writable: vec![0; BYTES],
        };
        c.header(bar0);
        c.pcie();
        c.msix();
        c.power();
        c.aer();
        c
    }

    fn header(&mut self, bar0: u64) {
        self.set16(0x00, PCI_VENDOR);
        self.set16(0x02, PCI_DEVICE);
        self.writable16(COMMAND, 0x0547);
        self.set16(STATUS, 0x0010); // status: a list of capabilities
        self.set32(0x08, PCI_CLASS << 8 | 1); // revision 1
        self.bar(BAR0, bar0);
        self.bar(BAR4, MSIX_BAR_BYTES);
        self.set16(0x2c, PCI_VENDOR);
        self.set16(0x2e, 1);
        self.bytes[0x34] = PCIE as u8;
        self.writable[0x3c] = 0xff; // interrupt line: for software only
    }

    /// A 64-bit memory BAR. Software writes ones and reads back which address bits stick.
    fn bar(&mut self, at: usize, bytes: u64) {
        const MEMORY_64_BIT: u32 = 4;
        self.set32(at, MEMORY_64_BIT);
        let mask = !(bytes - 1);
        self.writable32(at, mask as u32);
        self.writable32(at + 4, (mask >> 32) as u32);
    }

    fn pcie(&mut self) {
        self.capability(PCIE, 0x10, MSIX);
        self.set16(PCIE + 2, 0x0002); // version 2, endpoint
        self.set32(PCIE + 4, 1 << 28 | 1 << 15 | 1); // function level reset, role-based errors, payload up to 256
        self.set16(DEVICE_CONTROL, 0x2810); // read requests up to 512, no snoop, relaxed ordering
        self.writable16(DEVICE_CONTROL, 0x7fff);
        self.set32(PCIE + 12, 0x0000_0104); // 16 lanes, 16 GT/s
        self.set16(PCIE + 0x12, 0x0104);
        self.set32(PCIE + 0x24, 0x0000_0010); // completion timeout can be disabled
        self.set32(PCIE + 0x2c, 0x0000_001e); // links of 2.5 to 16 GT/s
        self.set16(PCIE + 0x30, 0x0004); // of which 16 is the target
    }

    fn msix(&mut self) {
        self.capability(MSIX, 0x11, POWER);
        self.set16(MSIX + 2, MSIX_VECTORS as u16 - 1);
        self.writable16(MSIX + 2, 0xc000); // enable, mask all
        self.set32(MSIX + 4, MSIX_BAR);
        self.set32(MSIX + 8, PENDING_BITS | MSIX_BAR);
    }

    fn power(&mut self) {
        self.capability(POWER, 0x01, 0);
        self.set16(POWER + 2, 0x0003);
        self.set16(POWER + 4, 1 << 3); // waking up from D3 is no reset
        self.writable16(POWER + 4, 0x0003);
    }

    /// Advanced error reporting (7.8.4). The simulated link makes no errors, so no status bit is ever set; masks and
    /// severities can be set.
    fn aer(&mut self) {
        self.set32(AER, 2 << 16 | 0x0001);
        self.writable32(AER + 8, 0x07f7_f030);
        self.set32(AER + 0xc, 0x0046_2030); // severities as after reset
        self.writable32(AER + 0xc, 0x07f7_f030);
        self.set32(AER + 0x14, 0x0000_2000); // advisory errors are masked
        self.writable32(AER + 0x14, 0x0000_f1c1);
    }

    fn capability(&mut self, at: usize, id: u8, next: usize) {
        self.bytes[at] = id;
        self.bytes[at + 1] = next as u8;
    }

    fn set16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn set32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn writable16(&mut self, at: usize, mask: u16) {
        self.writable[at..at + 2].copy_from_slice(&mask.to_le_bytes());
    }

    fn writable32(&mut self, at: usize, mask: u32) {
        self.writable[at..at + 4].copy_from_slice(&mask.to_le_bytes());
    }

    /// Reads bytes; outside the space they are all ones.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        for (i, byte) in to.iter_mut().enumerate() {
            *byte = self
                .bytes
                .get(offset.saturating_add(i))
                .copied()
                .unwrap_or(0xff);
        }
    }

    /// A read of the card's was answered as unsupported. A requester reports that here; AER belongs to who gave the answer.
    pub fn master_abort(&mut self) {
        self.bytes[STATUS + 1] |= MASTER_ABORT;
    }

    /// Writes bytes; bits that are not writable stay. Says whether the write asks for a function level reset.
    pub fn write(&mut self, offset: usize, from: &[u8]) -> bool {
        let mut reset = false;
        for (i, &byte) in from.iter().enumerate() {
            let at = offset.saturating_add(i);
            let Some(mask) = self.writable.get(at) else {
                break;
            };
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
            if at == STATUS + 1 {
                self.bytes[at] &= !(byte & STATUS_ERRORS);
            }
            reset |= at == DEVICE_CONTROL + 1 && byte & FUNCTION_RESET != 0;
        }
        reset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dword(c: &ConfigSpace, at: usize) -> u32 {
        let mut bytes = [0; 4];
        c.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn bars_are_sized_as_software_does_it() {
        let mut c = ConfigSpace::new(4 << 20);
        c.write(BAR0, &[0xff; 8]);
        c.write(0x30, &[0xff; 4]);
        assert_eq!(
            (dword(&c, BAR0), dword(&c, BAR0 + 4)),
            (0xffc0_0004, u32::MAX)
        );
        assert_eq!(dword(&c, 0x30), 0, "there is no ROM");
        assert_eq!(dword(&c, 0x18), 0, "there is no BAR 2");
    }

    #[test]
    fn the_capability_list_holds_pcie_msix_and_power_management() {
        let c = ConfigSpace::new(4 << 20);
        let (mut at, mut ids) = (c.bytes[0x34] as usize, vec![]);
        while at != 0 {
            ids.push(c.bytes[at]);
            at = c.bytes[at + 1] as usize;
        }
        assert_eq!(ids, [0x10, 0x11, 0x01]);
        assert_eq!(
            dword(&c, 0),
            u32::from(PCI_DEVICE) << 16 | u32::from(PCI_VENDOR)
        );
        assert_eq!(dword(&c, MSIX) >> 16 & 0x7ff, 7);
        assert_eq!(dword(&c, AER), 0x0002_0001, "AER, and none behind it");
    }

    #[test]
    fn errors_are_reported_as_software_wants() {
        let mut c = ConfigSpace::new(4 << 20);
        c.write(AER, &[0xff; 0x1c]);
        assert_eq!(dword(&c, AER), 0x0002_0001);
        assert_eq!((dword(&c, AER + 4), dword(&c, AER + 0x10)), (0, 0));
        assert_eq!(dword(&c, AER + 8), 0x07f7_f030);
        assert_eq!(dword(&c, AER + 0x14), 0x0000_f1c1);
    }

    #[test]
    fn a_refused_read_stands_in_the_status_register_until_software_clears_it() {
        let mut c = ConfigSpace::new(4 << 20);
        assert_eq!(dword(&c, COMMAND) >> 16, 0x0010);
        c.master_abort();
        c.write(COMMAND, &[6, 0, 0, 0]);
        assert_eq!(dword(&c, COMMAND), 0x2010_0006);
        c.write(STATUS, &[0xff, 0xff]);
        assert_eq!(dword(&c, COMMAND), 0x0010_0006);
        assert_eq!(dword(&c, AER + 4), 0);
    }

    #[test]
    fn a_function_level_reset_is_noticed_and_reads_back_as_zero() {
        let mut c = ConfigSpace::new(4 << 20);
        assert!(c.write(DEVICE_CONTROL, &[0x10, 0xa8]));
        assert_eq!(dword(&c, DEVICE_CONTROL) & 0x8000, 0);
        assert!(!c.write(DEVICE_CONTROL, &[0x10, 0x28]));
        assert!(!c.write(BYTES - 1, &[0xff; 4]));
    }
}
