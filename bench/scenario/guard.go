// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/table"
	"github.com/lklrun/lklrun/internal/host/guard"
	"github.com/lklrun/lklrun/pkg/config"
)

// The ways to hide the stack's packets from the host's TCP, and the baseline to subtract.
const (
	unheard    = "nobody's"
	blanket    = "OUTPUT -j DROP"
	byNFT      = "nft"
	byIPTables = "iptables"
)

const (
	guardSpells = 10
	guardFrames = 20000 // per repetition; many times the number of frames in flight
	guardPort   = 50000
	guardName   = "guard"
)

func init() {
	register(Scenario{
		Order: 60, Name: guardName, Title: "The host's work on what is the stack's", Quick: true,
		About: "When the stack shares the host's address, the host's kernel gets a copy of each packet for the " +
			"stack. The traditional method lets the host's TCP create a reset for each and drops all resets that " +
			"it sends. lklrun drops the packet itself, at the device, and drops no resets except those. The " +
			"sender runs on one CPU, over veth. veth passes a frame on within the sending call, so the sender's " +
			"time includes the receiver's work. The cost of frames of a protocol without a receiver is " +
			"subtracted.",
		Budget: Budget{Quick: 8 * time.Second, Full: 15 * time.Second},
		Build:  buildGuard,
	})
}

func buildGuard(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	w, err := l.Wire(ctx, lab.WireOptions{Name: guardName})
	if err != nil {
		return nil, err
	}
	var ms []Measure
	var idle float64
	for _, way := range []string{unheard, blanket, byNFT, byIPTables} {
		k := table.Key{What: "segment of the stack's", Placement: lab.OneCPU, Variant: way}
		ms = append(ms, Measure{Key: k, Take: func(ctx context.Context) (table.Sample, error) {
			ns, err := onThread(func() (float64, error) { return sendAs(ctx, l, w, way) })
			if way == unheard {
				idle = ns
				return table.Sample{"ns/frame": ns}, err
			}
			return table.Sample{"ns": ns - idle}, err
		}})
	}
	return ms, nil
}

// onThread runs f on a new thread, because f changes the namespace of the thread.
func onThread(f func() (float64, error)) (v float64, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// There is no unlock: the thread ends with the goroutine.
		runtime.LockOSThread()
		v, err = f()
	}()
	<-done
	return v, err
}

// sendAs guards the host's TCP in one way, sends frames, and returns the
// nanoseconds per frame.
func sendAs(ctx context.Context, l *lab.Lab, w *lab.Wire, way string) (float64, error) {
	if err := enter(w.Client); err != nil {
		return 0, err
	}
	ifi, err := net.InterfaceByName("c0")
	if err != nil {
		return 0, err
	}
	undo, err := guardBy(ctx, l, w, way)
	if err != nil {
		return 0, err
	}
	took, err := send(w, way, ifi.HardwareAddr)
	if err == nil {
		err = enter(w.Client)
	}
	if e := undo(); err == nil {
		err = e
	}
	return took, err
}

// guardBy creates the rules for one way in this thread's namespace.
func guardBy(ctx context.Context, l *lab.Lab, w *lab.Wire, way string) (undo func() error, err error) {
	mode := config.GuardNFT
	switch way {
	case unheard:
		return func() error { return nil }, nil
	case blanket:
		rule := func(verb string) error {
			return l.Run(ctx, "ip netns exec "+w.Client+" iptables "+verb+" OUTPUT -p tcp --tcp-flags RST RST -j DROP")
		}
		return func() error { return rule("-D") }, rule("-A")
	case byIPTables:
		mode = config.GuardIPTables
	}
	var rules []guard.Rules
	g := guard.New(guard.Config{
		Name: "bench", Mode: mode, Ports: guard.Ports{First: guardPort, Last: guardPort + config.DefaultPorts - 1},
		Others:  func() ([]guard.Rules, error) { return nil, nil },
		Journal: func(r guard.Rules) error { rules = append(rules, r); return nil },
		Tell:    func(string) {}, Log: slog.New(slog.DiscardHandler),
	})
	err = g.Add(ctx, guard.Link{Device: "c0", Addrs: []netip.Addr{netip.MustParseAddr("10.80.1.2")}})
	return func() error {
		for _, r := range rules {
			if err := guard.Remove(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}, err
}

// send sends frames from the server's end of the wire, on CPU 0, and returns the
// nanoseconds per frame.
func send(w *lab.Wire, way string, to net.HardwareAddr) (float64, error) {
	if err := enter(w.Server); err != nil {
		return 0, err
	}
	var cpu unix.CPUSet
	cpu.Set(0)
	if err := unix.SchedSetaffinity(0, &cpu); err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	ifi, err := net.InterfaceByName("s0")
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: ifi.Index}); err != nil {
		return 0, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return 0, err
	}
	frame := segment(ifi.HardwareAddr, to)
	if way == unheard {
		binary.BigEndian.PutUint16(frame[12:], 0x88b5) // EtherType for experiments, IEEE 802
	}
	// Measure wall-clock time, because the thread's CPU time does not include the
	// interrupt that receives a frame. The fastest repetition had the least other
	// load.
	best := math.Inf(1)
	for range guardSpells {
		began := time.Now()
		for range guardFrames {
			if _, err := unix.Write(fd, frame); err != nil {
				return 0, err
			}
		}
		best = min(best, float64(time.Since(began).Nanoseconds())/guardFrames)
	}
	return best, nil
}

func enter(netns string) error {
	f, err := os.Open("/run/netns/" + netns)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
}

// segment returns a frame from 10.80.1.1 that contains an ACK for a connection that
// does not exist. Its checksums are correct.
func segment(from, to net.HardwareAddr) []byte {
	b := append(append([]byte(nil), to...), from...)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	ip := []byte{0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, unix.IPPROTO_TCP, 0, 0, 10, 80, 1, 1, 10, 80, 1, 2}
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	tcp := make([]byte, 20)
	binary.BigEndian.PutUint16(tcp, 80)
	binary.BigEndian.PutUint16(tcp[2:], guardPort)
	tcp[12], tcp[13] = 5<<4, 0x10 // ACK
	pseudo := append(append(append([]byte(nil), ip[12:]...), 0, unix.IPPROTO_TCP, 0, 20), tcp...)
	binary.BigEndian.PutUint16(tcp[16:], checksum(pseudo))
	return append(append(b, ip...), tcp...)
}

func checksum(b []byte) uint16 {
	sum := uint32(0)
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
