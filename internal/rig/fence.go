package rig

import (
	"fmt"
	"net"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

const (
	fencePatience = 10 * time.Second
	fenceAgain    = 100 * time.Millisecond
)

// fence returns when a frame that was sent now on each CPU has arrived. A
// veth pair keeps packets in order in one ring, or, without NAPI, in one
// backlog for each CPU that sends; so everything sent before has arrived too.
// A frame that found a ring full is sent again.
func (r *Receiver) fence() error {
	cpus, err := ownCPUs()
	if err != nil {
		return err
	}
	frame, err := r.link.fenceFrame()
	if err != nil {
		return err
	}
	fd, err := packetSocket(r.link.Peer, 0)
	if err != nil {
		return fmt.Errorf("open the fence's socket: %w", err)
	}
	defer unix.Close(fd)

	missing := make(map[uint64]bool, len(cpus))
	for _, cpu := range cpus {
		missing[uint64(cpu)] = true
	}
	deadline := time.After(fencePatience)
	for {
		for cpu := range missing {
			number(frame, cpu)
			if err := writeOn(int(cpu), fd, frame); err != nil {
				return fmt.Errorf("send the fence on CPU %d: %w", cpu, err)
			}
		}
		again := time.After(fenceAgain)
		for waiting := true; waiting; {
			select {
			case cpu := <-r.fences:
				if delete(missing, cpu); len(missing) == 0 {
					return nil
				}
			case <-again:
				waiting = false
			case <-r.done:
				return fmt.Errorf("wait for the fence: the receiver has ended")
			case <-deadline:
				return fmt.Errorf("wait for the fence: its ARP request does not arrive (is ARP dropped?)")
			}
		}
	}
}

// fenceFrame is an ARP request, which no gate may drop, with a marker.
func (l Link) fenceFrame() ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true},
		&layers.Ethernet{
			SrcMAC: l.Peer.MAC, EthernetType: layers.EthernetTypeARP,
			DstMAC: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		},
		&layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4,
			Operation:       layers.ARPRequest,
			SourceHwAddress: l.Peer.MAC, SourceProtAddress: l.Peer.IPv4.AsSlice(),
			DstHwAddress: make([]byte, 6), DstProtAddress: l.Gate.IPv4.AsSlice(),
		})
	if err != nil {
		return nil, fmt.Errorf("build the fence: %w", err)
	}
	return append(buf.Bytes(), marker(fenceStream)...), nil
}

// ownCPUs returns the CPUs that this process may run on.
func ownCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read own CPUs: %w", err)
	}
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
