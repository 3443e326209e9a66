// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/guard"
	"github.com/lklrun/lklrun/pkg/config"
)

// What the host's kernel does with a segment for a connection of the stack's, of
// which it knows nothing, when both have one address: the old way, by which it
// makes a reset of each and drops that on its way out, and lklrun's, by which the
// segment never gets to its TCP. On the wire between client and server,
// 10.79.2.2, a sender on one CPU, whose time the work of the receiving side is:
// veth hands a frame over within the call that sends it. What is left when the
// frames are of a protocol that nobody has is taken off.
const (
	unheard    subject = "nobody's"
	blanket    subject = "OUTPUT -j DROP"
	byNFT      subject = "nft"
	byIPTables subject = "iptables"
)

var guardWays = []subject{blanket, byNFT, byIPTables}

const (
	guardSpells = 10
	guardFrames = 20000 // in a spell: many times what may wait on the way
	guardPort   = 50000
)

// guarding measures it. The result's base is the old way.
func (b *bench) guarding(ctx context.Context) (*result, error) {
	r := &result{What: "host's work on a segment of the stack's", Unit: "ns", Where: "one CPU", Values: map[subject][]float64{}, base: blanket}
	for range b.rounds {
		took := map[subject]float64{}
		for _, way := range append([]subject{unheard}, guardWays...) {
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				// Not unlocked: the thread ends with the goroutine.
				runtime.LockOSThread()
				took[way], err = sendAs(ctx, way)
			}()
			<-done
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", r.What, way, err)
			}
		}
		for _, way := range guardWays {
			r.Values[way] = append(r.Values[way], took[way]-took[unheard])
		}
	}
	r.finish()
	return r, nil
}

// sendAs has the host guarded in one way and returns how many nanoseconds a frame
// takes.
func sendAs(ctx context.Context, way subject) (float64, error) {
	if err := enter("client"); err != nil {
		return 0, err
	}
	ifi, err := net.InterfaceByName("c0")
	if err != nil {
		return 0, err
	}
	undo, err := guardBy(ctx, way)
	if err != nil {
		return 0, err
	}
	took, err := send(way, ifi.HardwareAddr)
	if err == nil {
		err = enter("client")
	}
	if e := undo(); err == nil {
		err = e
	}
	return took, err
}

// guardBy makes the rules of one way in this thread's namespace.
func guardBy(ctx context.Context, way subject) (undo func() error, err error) {
	mode := config.GuardNFT
	switch way {
	case unheard:
		return func() error { return nil }, nil
	case blanket:
		rule := func(verb string) error {
			_, err := output(ctx, wireLimit, "ip", "netns", "exec", "client", "iptables", verb, "OUTPUT", "-p", "tcp", "--tcp-flags", "RST", "RST", "-j", "DROP")
			return err
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
	err = g.Add(ctx, guard.Link{Device: "c0", Addrs: []netip.Addr{netip.MustParseAddr("10.79.2.2")}})
	return func() error {
		for _, r := range rules {
			if err := guard.Remove(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}, err
}

// send sends from the server's end of the wire, on CPU 0.
func send(way subject, to net.HardwareAddr) (float64, error) {
	if err := enter("server"); err != nil {
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
		binary.BigEndian.PutUint16(frame[12:], 0x88b5) // for experiments, IEEE 802
	}
	// Time on the clock: that of the interrupt in which a frame is received is
	// not the thread's. The best spell is the one in which the machine did least
	// beside it.
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

// segment is a frame with an acknowledgement of a connection that nobody has,
// from 10.79.2.1, the checksums right.
func segment(from, to net.HardwareAddr) []byte {
	b := append(append([]byte(nil), to...), from...)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	ip := []byte{0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, unix.IPPROTO_TCP, 0, 0, 10, 79, 2, 1, 10, 79, 2, 2}
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

// guardTable prints it: the old way, and the others with their ratio to it.
func guardTable(w io.Writer, r *result) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head, row := []string{"", "unit", "placement"}, []string{r.What, r.Unit, r.Where}
	for _, way := range guardWays {
		m := r.Medians[way]
		cell := fmt.Sprintf("%.*f", digits(m), m)
		if ratio, ok := r.Ratios[way]; ok {
			cell += fmt.Sprintf(" (%.2f)", ratio)
		}
		head, row = append(head, string(way)), append(row, cell)
	}
	fmt.Fprintf(tw, "\n%s\t\n%s\t\n", strings.Join(head, "\t"), strings.Join(row, "\t"))
	_ = tw.Flush() // to the terminal
	fmt.Fprintf(w, "\nan address shared with the host; in brackets the ratio to what drops every reset the host sends\n")
}
