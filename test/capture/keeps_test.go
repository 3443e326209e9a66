// SPDX-License-Identifier: Apache-2.0

package capture

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/sends_bursts.py
var sendsBursts string

const (
	// keptBurst is the number of packets in a burst: as many as 1 Gbit/s carries in 0.1
	// s. The capture's buffer in the stack has room for all of them, so none is dropped
	// even if the reader is late on a busy machine.
	keptBurst  = 8000
	keptBursts = 6
	keptReport = 500 // packets for each line of sends_bursts.py

	// keptSize is the minimum size of a packet in a file.
	keptSize = 1448 + 42 + 32

	// keptOthers is more than the number of other packets that are received.
	keptOthers = 100
)

// TestCaptureKeepsAll checks that a capture with default options drops no packet of a
// stream of full-size packets, in either direction. It must not truncate packets that
// are larger than any on a wire.
func TestCaptureKeepsAll(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"out", "in"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newCaptureSite(t, "supervise", "sleep", "1000")
			trace := filepath.Join(s.dir, "trace.pcapng")
			p := s.captures("-i", "eth0", "-w", trace, "-U", "udp port 9")
			sender := s.ctl("exec", "--", "/usr/bin/python3", "-c", sendsBursts, "10.77.1.1")
			if way == "in" {
				sender = s.server.Command("/usr/bin/python3", "-c", sendsBursts, "10.77.1.2")
			}
			s.keepsBursts(sender, trace, way == "in")
			captured, received, dropped := s.ends(p)
			if dropped != 0 || captured != received || way == "out" && captured != keptBurst*keptBursts {
				t.Errorf("%d packets captured, %d received, %d dropped; %d were sent", captured, received, dropped, keptBurst*keptBursts)
			}
		})
	}
	t.Run("run", func(t *testing.T) {
		t.Parallel()
		trace := filepath.Join(kit.Dir(t), "trace.pcapng")
		s := newCaptureSiteWith(t, "supervise", []string{"--capture", trace + ",filter=udp port 9"}, "sleep", "1000")
		s.keepsBursts(s.ctl("exec", "--", "/usr/bin/python3", "-c", sendsBursts, "10.77.1.1"), trace, false)
		s.target.Signal(syscall.SIGTERM)
		if r := s.target.Wait(kit.Limit); r.Stderr != "" {
			t.Error(r)
		}
		if n := len(s.tshark(trace, "-T", "fields", "-e", "frame.len")); n != keptBurst*keptBursts {
			t.Errorf("%d packets captured, %d were sent", n, keptBurst*keptBursts)
		}
	})
	t.Run("large", func(t *testing.T) {
		t.Parallel()
		s := newCaptureSite(t, "supervise", "sleep", "1000")
		trace := filepath.Join(s.dir, "trace.pcapng")
		p := s.captures("-i", "eth0", "-w", trace)
		s.moves("100M")
		s.ends(p)
		if n := len(s.tshark(trace, "-Y", "frame.len > 65000")); n == 0 {
			t.Error("no packet is larger than 65,000 bytes")
		}
		if n := len(s.tshark(trace, "-Y", "frame.cap_len < frame.len")); n > 0 {
			t.Errorf("%d packets are cut", n)
		}
	})
}

// keepsBursts makes a sender send its bursts one at a time. Each burst starts only when
// the file contains the packets of the previous one.
func (s *captureSite) keepsBursts(sender *exec.Cmd, trace string, in bool) {
	s.Helper()
	stdin, err := sender.StdinPipe()
	if err != nil {
		s.Fatal(err)
	}
	p := kit.Start(s, sender)
	for i := range keptBursts {
		fmt.Fprintln(stdin, keptBurst)
		for n := range keptBurst / keptReport { // a busy machine may need longer than the limit for all
			kit.WaitFor(s, "the sender", kit.Limit, func() bool {
				out, _ := p.Output()
				return strings.Count(out, "sent\n") > i*keptBurst/keptReport+n || !p.Running()
			})
		}
		kept := kit.Within(kit.Limit, func() bool {
			want := uint64(keptBurst * (i + 1))
			if in { // the tap's queue drops packets if the stack is late
				want = max(s.count("rx_packets"), keptOthers) - keptOthers
			}
			st, err := os.Stat(trace)
			return err == nil && uint64(st.Size()) >= want*keptSize
		})
		if !kept {
			break // the counts show which packets are missing
		}
	}
	stdin.Close()
	p.Wait(kit.Limit)
}
