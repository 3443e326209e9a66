// SPDX-License-Identifier: Apache-2.0

// Package drops reads which packets a stack dropped, which TCP resets it sent and
// received, and what TCP retransmitted, each with its reason.
package drops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Files of the last records (third_party/lkl/arch/lkl/drivers/proc_drops.c).
const (
	Drops       = "/proc/net/drops" // drops and resets
	CountsFile  = "/proc/net/drop_counts"
	Retransmits = "/proc/net/retransmits"
)

// ErrUnsupported is the error for a stack without that file.
var ErrUnsupported = errors.New("the kernel of this stack reports no drops, resets or retransmissions; use a stack of lklrun, or rebuild yours with lklrun stack build")

// Kinds of records.
const (
	Drop          = "drop"
	ResetSent     = "reset-sent"
	ResetReceived = "reset-received"
	Retransmit    = "retransmit"
)

// OtherHost is the reason of frames for other machines, which a switch sends everywhere.
const OtherHost = "OTHERHOST"

// Record is a dropped packet, a TCP reset, or data that TCP retransmitted.
type Record struct {
	Number      uint64         `json:"number"`               // number of the record, from 0
	Time        time.Time      `json:"time"`                 // time of the event
	Kind        string         `json:"kind"`                 // drop, reset-sent, reset-received or retransmit
	Reason      string         `json:"reason"`               // the kernel's name of the reason, such as NO_SOCKET
	Meaning     string         `json:"meaning,omitempty"`    // what the reason means
	Function    string         `json:"function,omitempty"`   // the kernel function that dropped the packet
	Interface   string         `json:"interface,omitempty"`  // interface that received or would send the packet
	Bytes       int            `json:"bytes,omitempty"`      // length of the packet when the kernel dropped it; of the data sent again
	Family      string         `json:"family,omitempty"`     // inet, inet6 or arp
	Protocol    string         `json:"protocol,omitempty"`   // tcp, udp, icmp, ... or a number
	Source      netip.AddrPort `json:"source,omitzero"`      // source of the packet; port 0: none
	Destination netip.AddrPort `json:"destination,omitzero"` // destination of the packet
	Flags       string         `json:"flags,omitempty"`      // TCP flags, as in tcpdump(8)
	Token       string         `json:"token,omitempty"`      // MPTCP token of the socket's connection
	Process     string         `json:"process,omitempty"`    // process that has the socket
	PID         int            `json:"pid,omitempty"`        // its ID on the host
	Inode       uint64         `json:"inode,omitempty"`      // inode of the socket in the stack
}

// Count is the number of events of one kind with one reason, since the stack's start.
type Count struct {
	Kind    string `json:"kind"`              // drop, reset-sent, reset-received or retransmit
	Reason  string `json:"reason"`            // the kernel's name of the reason
	Meaning string `json:"meaning,omitempty"` // what the reason means
	Count   uint64 `json:"count"`             // number of events
}

// Reader reads records, oldest first. Each record is returned once.
type Reader struct {
	path string
	file *stackconn.File
	rest string
	next uint64

	// Missed is the number of records that the kernel overwrote before they were read.
	Missed uint64
}

// Open starts reading a file with the oldest record that the stack still has.
func Open(ctx context.Context, conn *stackconn.Conn, path string) (*Reader, error) {
	f, err := conn.Open(ctx, path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrUnsupported
	}
	if err != nil {
		return nil, err
	}
	return &Reader{path: path, file: f}, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Read returns the records that the stack has made since the last call.
func (r *Reader) Read(ctx context.Context) ([]Record, error) {
	var all []Record
	buf := make([]byte, 32<<10)
	for {
		n, err := r.file.Read(ctx, buf)
		if err != nil && !errors.Is(err, io.EOF) {
			return all, err
		}
		if n == 0 {
			return all, nil
		}
		lines := strings.SplitAfter(r.rest+string(buf[:n]), "\n")
		r.rest = lines[len(lines)-1]
		for _, line := range lines[:len(lines)-1] {
			if strings.HasPrefix(line, "number ") {
				continue
			}
			rec, err := parse(line)
			if err != nil {
				return all, &fs.PathError{Op: "reading", Path: r.path, Err: err}
			}
			r.Missed += rec.Number - r.next
			r.next = rec.Number + 1
			all = append(all, rec)
		}
	}
}

// Counts reads how often each reason occurred since the stack's start.
func Counts(ctx context.Context, conn *stackconn.Conn) ([]Count, error) {
	b, err := conn.ReadFile(ctx, CountsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrUnsupported
	}
	if err != nil {
		return nil, err
	}
	counts, err := ParseCounts(string(b))
	if err != nil {
		return nil, &fs.PathError{Op: "reading", Path: CountsFile, Err: err}
	}
	return counts, nil
}

// ParseCounts parses /proc/net/drop_counts.
func ParseCounts(text string) ([]Count, error) {
	counts := []Count{}
	for line := range strings.Lines(text) {
		c := Count{}
		if _, err := fmt.Sscan(line, &c.Kind, &c.Reason, &c.Count); err != nil {
			return nil, fmt.Errorf("%q: expected kind, reason and count", line)
		}
		c.Meaning = Meaning(c.Reason)
		counts = append(counts, c)
	}
	return counts, nil
}

// parse parses a line of the file.
func parse(line string) (Record, error) {
	f := strings.Fields(line)
	if len(f) != 16 {
		return Record{}, fmt.Errorf("%q has %d fields instead of 16", line, len(f))
	}
	var err error
	number := func(s string, base, bits int) uint64 {
		n, e := strconv.ParseUint(s, base, bits)
		if e != nil {
			err = e
		}
		return n
	}
	sec, nsec, _ := strings.Cut(f[1], ".")
	flags, token := number(f[13], 16, 8), number(f[15], 16, 32)
	function, _, _ := strings.Cut(f[4], ".") // without suffixes of the compiler, such as .constprop.0
	r := Record{
		Number:      number(f[0], 10, 64),
		Time:        time.Unix(int64(number(sec, 10, 63)), int64(number(nsec, 10, 63))),
		Kind:        f[2],
		Reason:      f[3],
		Meaning:     meaningIn(f[3], function),
		Function:    absent(function),
		Interface:   absent(f[5]),
		Bytes:       int(number(f[6], 10, 32)),
		Source:      address(f[9], uint16(number(f[10], 10, 16))),
		Destination: address(f[11], uint16(number(f[12], 10, 16))),
		Inode:       number(f[14], 10, 64),
	}
	r.Family, r.Protocol = family(number(f[7], 16, 16)), protocol(number(f[8], 10, 8))
	if r.Protocol == "tcp" {
		r.Flags = tcpFlags(flags)
		if r.Reason == "NO_SOCKET" && flags&synAck == synAck {
			r.Meaning = lateAnswer
		}
	}
	if token != 0 {
		r.Token = fmt.Sprintf("%08x", token)
	}
	return r, err
}

func absent(word string) string {
	if word == "-" {
		return ""
	}
	return word
}

func address(word string, port uint16) netip.AddrPort {
	a, err := netip.ParseAddr(word)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, port)
}

// family returns the name of an Ethernet protocol.
func family(ethertype uint64) string {
	switch ethertype {
	case 0x0800:
		return "inet"
	case 0x86dd:
		return "inet6"
	case 0x0806:
		return "arp"
	}
	return ""
}

// protocols are the names of protocols that tcpdump and ss use.
var protocols = map[uint64]string{1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 47: "gre", 58: "icmp6", 136: "udplite"}

func protocol(n uint64) string {
	if name := protocols[n]; name != "" || n == 0 {
		return name
	}
	return strconv.FormatUint(n, 10)
}

// Protocol returns the number of a record's protocol, or 0 if it is not known.
func Protocol(name string) byte {
	for n, known := range protocols {
		if known == name {
			return byte(n)
		}
	}
	n, _ := strconv.ParseUint(name, 10, 8)
	return byte(n)
}

// letters are the TCP flags in the order and with the letters of tcpdump(8).
var letters = []struct {
	bit  uint64
	word byte
}{{0x02, 'S'}, {0x01, 'F'}, {0x08, 'P'}, {0x04, 'R'}, {0x20, 'U'}, {0x40, 'E'}, {0x80, 'W'}, {0x10, '.'}}

// Flags returns the bits of a record's TCP flags.
func Flags(words string) (bits byte) {
	for _, f := range letters {
		if strings.IndexByte(words, f.word) >= 0 {
			bits |= byte(f.bit)
		}
	}
	return bits
}

// tcpFlags formats TCP flags as tcpdump(8) does.
func tcpFlags(flags uint64) string {
	var b strings.Builder
	for _, f := range letters {
		if flags&f.bit != 0 {
			b.WriteByte(f.word)
		}
	}
	return b.String()
}
