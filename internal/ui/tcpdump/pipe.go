// SPDX-License-Identifier: Apache-2.0

package tcpdump

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"syscall"

	"github.com/lklrun/lklrun/pkg/capture"
)

// A Pipe is a tcpdump that reads the packets of a capture and has its own output. It is a
// handler of a capture.Session.
type Pipe struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	merged bool
	pcap   *capture.Pcap
	raw    []bool // by interface: it has no link layer
	ended  chan struct{}
	err    error
}

// StartPipe starts tcpdump with flags. merged means that packets of several interfaces
// come: they all get an Ethernet header, because tcpdump would take the number of an
// interface for one of its own network. ended is called when tcpdump has ended.
func StartPipe(flags []string, merged bool, stdout, stderr io.Writer, ended func()) (*Pipe, error) {
	path, err := exec.LookPath("tcpdump")
	if err != nil {
		return nil, ErrMissing
	}
	// The names of the host's network are not those of the stack's, and the device
	// computes checksums later.
	p := &Pipe{cmd: exec.CommandContext(context.Background(), path, append([]string{"-n", "-K", "-r", "-"}, flags...)...), merged: merged, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = stdout, &notes{w: stderr}
	// Ctrl-C must end only the capture; tcpdump then prints the last packets.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
		ended()
	}()
	return p, nil
}

// Interface begins the file with the first interface.
func (p *Pipe) Interface(m *capture.Member) error {
	p.raw = append(p.raw, m.LinkType == capture.LinkTypeRaw)
	return p.begin(m.LinkType)
}

func (p *Pipe) begin(link capture.LinkType) error {
	if p.pcap != nil {
		return nil
	}
	if p.merged {
		link = capture.LinkTypeEthernet
	}
	p.pcap = capture.NewPcap(p.in, false)
	if _, err := p.pcap.AddInterface(capture.Interface{LinkType: link, Snaplen: capture.MaxSnaplen}); err != nil {
		return err
	}
	return p.written(p.pcap.Flush())
}

// Packets writes packets.
func (p *Pipe) Packets(packets []capture.Packet) error {
	for _, k := range packets {
		if p.merged && p.raw[k.Interface] {
			size := len(k.Data)
			k.Data = append(ethernet(k.Data), k.Data...)
			k.Length += len(k.Data) - size
		}
		k.Interface = 0
		if err := p.pcap.WritePacket(&k); err != nil {
			return p.written(err)
		}
	}
	return p.written(p.pcap.Flush())
}

// written ends the capture if tcpdump has ended, for example after -c packets.
func (p *Pipe) written(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return capture.ErrEnough
	}
	return err
}

// Close ends the input, and waits until tcpdump has printed everything.
func (p *Pipe) Close() error {
	err := p.begin(capture.LinkTypeEthernet) // even a file without packets has a header
	if errors.Is(err, capture.ErrEnough) {
		err = nil
	}
	_ = p.in.Close() // fails if tcpdump has ended
	<-p.ended
	return errors.Join(err, p.err)
}

// notes writes tcpdump's messages, except that it reads a file.
type notes struct {
	w    io.Writer
	rest []byte
}

func (n *notes) Write(text []byte) (int, error) {
	n.rest = append(n.rest, text...)
	for {
		line, rest, whole := bytes.Cut(n.rest, []byte("\n"))
		if !whole {
			return len(text), nil
		}
		n.rest = rest
		if bytes.HasPrefix(line, []byte("reading from file -")) || bytes.HasPrefix(line, []byte("dropped privs to ")) {
			continue
		}
		if _, err := n.w.Write(append(line, '\n')); err != nil {
			return len(text), err
		}
	}
}
