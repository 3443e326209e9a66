// SPDX-License-Identifier: Apache-2.0

// Package tcpdump uses tcpdump(8) to describe the packets of a capture.
package tcpdump

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/pkg/capture"
)

// ErrMissing reports that tcpdump is not installed.
var ErrMissing = errors.New("tcpdump is not installed")

// A Printer is a running tcpdump. One goroutine may call Write and another one Next.
type Printer struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	pcap *capture.Pcap
	out  *bufio.Reader
	errs bytes.Buffer

	count int64 // number of packets written
	mu    sync.Mutex
	sent  []sent // packets that are not printed yet
}

// sent is a packet, and the prefix of tcpdump's first line for it.
type sent struct {
	packet *capture.Packet
	stamp  string
}

// Start starts tcpdump with additional flags, such as -v. When ctx ends, tcpdump is
// killed.
func Start(ctx context.Context, flags ...string) (*Printer, error) {
	path, err := exec.LookPath("tcpdump")
	if err != nil {
		return nil, ErrMissing
	}
	// Print exact times and no host names. Do not verify checksums, because the
	// device computes them later.
	p := &Printer{cmd: exec.CommandContext(ctx, path, append([]string{"-r", "-", "-l", "-n", "-K", "-tt", "--nano"}, flags...)...)}
	p.cmd.Stderr = &p.errs
	// Ctrl-C must end only the capture; tcpdump then prints the last packets.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	// With several interfaces, tcpdump would print the names of its own network's
	// interfaces instead of the stack's. So it gets a file with a single interface.
	p.pcap = capture.NewPcap(p.in, false)
	_, err = p.pcap.AddInterface(capture.Interface{LinkType: capture.LinkTypeEthernet, Snaplen: capture.MaxSnaplen})
	return p, err
}

// Write passes packets to tcpdump. The caller must not change them afterwards. link
// returns the link type of an interface by its number. Write can block until Next
// is called.
func (p *Printer) Write(packets []capture.Packet, link func(number int) capture.LinkType) error {
	for i := range packets {
		k := packets[i]
		if link(k.Interface) == capture.LinkTypeRaw || len(k.Data) == 0 {
			k.Data = append(ethernet(k.Data), k.Data...)
			k.Length += len(k.Data) - len(packets[i].Data)
		}
		// tcpdump prints no time for packets that it considers impossible.
		k.Data = k.Data[:min(len(k.Data), capture.MaxSnaplen)]
		k.Length = max(len(k.Data), min(k.Length, capture.MaxSnaplen))
		// The time identifies the line of the packet. A peer cannot guess it, and so
		// cannot send a payload that looks like another packet's line.
		p.count++
		k.Time, k.Interface = time.Unix(p.count, rand.Int64N(1e9)), 0
		p.mu.Lock()
		p.sent = append(p.sent, sent{&packets[i], fmt.Sprintf("%d.%09d ", p.count, k.Time.Nanosecond())})
		p.mu.Unlock()
		if err := p.pcap.WritePacket(&k); err != nil {
			return err
		}
	}
	return p.pcap.Flush()
}

// ethernet returns an Ethernet header without addresses for an IP packet.
func ethernet(ip []byte) []byte {
	head := make([]byte, 14, 14+len(ip))
	switch {
	case len(ip) > 0 && ip[0]>>4 == 4:
		head[12] = 0x08
	case len(ip) > 0 && ip[0]>>4 == 6:
		head[12], head[13] = 0x86, 0xdd
	}
	return head
}

// Next returns the next line. With the first line of a packet, it returns the
// packet, and removes the time from the line. After the last line, the error is
// io.EOF.
func (p *Printer) Next() (line string, of *capture.Packet, err error) {
	line, err = p.out.ReadString('\n')
	if line == "" {
		return "", nil, p.ended(err)
	}
	line = strings.TrimSuffix(line, "\n")
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sent) > 0 {
		if rest, ok := strings.CutPrefix(line, p.sent[0].stamp); ok {
			of, p.sent = p.sent[0].packet, p.sent[1:]
			return rest, of, nil
		}
	}
	return line, nil, nil
}

// ended returns the error that Next reports after the end of the output.
func (p *Printer) ended(err error) error {
	if werr := p.cmd.Wait(); werr != nil {
		lines := strings.Split(strings.TrimSpace(p.errs.String()), "\n")
		return fmt.Errorf("tcpdump: %w: %s", werr, strings.TrimPrefix(lines[len(lines)-1], "tcpdump: "))
	}
	return err
}

// End ends the input. Next still returns the remaining lines.
func (p *Printer) End() error {
	// If there was no packet, the file header is still in the buffer.
	return errors.Join(p.pcap.Flush(), p.in.Close())
}
