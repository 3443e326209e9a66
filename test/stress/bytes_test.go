// SPDX-License-Identifier: Apache-2.0

package stress

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// exchanges is the number of attempts. The race under test shows its error in about one
// of three attempts.
const exchanges = 12

// TestFinding01WrongBytes checks received bytes that a program keeps by reference in a
// pipe, in a socket or in another process. They must not change when further bytes
// arrive. csrc/tests/bytes checks each byte by its connection and position.
func TestFinding01WrongBytes(t *testing.T) {
	s := kit.NewSite(t)
	program := built(t, "bytes")
	for _, r := range [][2]string{{"supervise", "mptcp"}, {"supervise", "vanilla"}, {"preload", "mptcp"}, {"preload", "vanilla"}} {
		flags := []string{"-q", "--engine", r[0], "--stack", r[1], "--"}
		t.Run(r[0]+"/"+r[1], func(t *testing.T) {
			for _, way := range []string{"sendfile", "splice", "tee", "relay", "vmsplice", "exchange"} {
				t.Run(way, func(t *testing.T) {
					times := 1
					if way == "exchange" {
						times = exchanges
					}
					for range times {
						says(t, way+": right\n", append(flags, program, way)...)
					}
				})
			}
			if r[0] == "supervise" { // preload passes no descriptors of its own to other processes
				t.Run("given", func(t *testing.T) { outside(t, flags, program, "given") })
				t.Run("taken", func(t *testing.T) { outside(t, flags, program, "taken") })
			}
		})
	}
	t.Run("busybox", func(t *testing.T) { piped(s.In(t)) })
	t.Run("zerocopy", func(t *testing.T) { zerocopy(t, program, "supervise") })
}

// TestPreloadZerocopy checks that SO_ZEROCOPY is refused, so that no program waits for
// completions, and that MSG_ZEROCOPY copies.
func TestPreloadZerocopy(t *testing.T) {
	kit.NewSite(t)
	zerocopy(t, built(t, "bytes"), "preload")
}

func zerocopy(t *testing.T, program, engine string) {
	for stack, receive := range map[string]string{"mptcp": "EOPNOTSUPP", "vanilla": "ENOPROTOOPT"} {
		if engine == "supervise" {
			receive = "ENOPROTOOPT"
		}
		want := "SO_ZEROCOPY, TCP: EOPNOTSUPP\nSO_ZEROCOPY, UDP: EOPNOTSUPP\n" +
			"TCP_ZEROCOPY_RECEIVE: " + receive + "\nMSG_ZEROCOPY: 2097152 bytes right\nerror queue: EAGAIN\n"
		says(t, want, "-q", "--engine", engine, "--stack", stack, "--", program, "zerocopy")
	}
}

// says runs a target that must succeed and print exactly want.
func says(t *testing.T, want string, args ...string) {
	t.Helper()
	if r := kit.Run(t, 2*kit.Limit, kit.Lklrun(args...)); r.Status != 0 || r.Stdout != want || r.Stderr != "" {
		t.Errorf("%q: %v", args, r)
	}
}

// outside makes a process outside the run move bytes from one of the run's connections
// into its own pipe.
func outside(t *testing.T, flags []string, program, how string) {
	path := filepath.Join(kit.Dir(t), "outside")
	other := kit.Start(t, kit.Host.Command(program, "outside", path))
	kit.WaitFor(t, "the process outside", kit.Limit, func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
	says(t, how+": right\n", append(flags, program, how, path)...)
	if r := other.Wait(kit.Limit); r.Status != 0 || r.Stdout != "outside: right\n" {
		t.Errorf("outside: %v", r)
	}
}

// piped makes a shell read its connection with busybox, which uses sendfile() to move the
// data into a pipe.
func piped(s *kit.Site) {
	t := s.T
	kit.Need(t, "bash", "busybox", "sha256sum")
	path := filepath.Join(kit.Dir(t), "file")
	kit.Random(t, path, 64<<20)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l := s.Server.Listen(t, ":7000")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			go func(c net.Conn) {
				defer c.Close()
				c.Write(data) //nolint:errcheck // errors show in the checksum
			}(c)
		}
	}()
	want := fmt.Sprintf("%x  -\n", sha256.Sum256(data))
	for range 3 {
		says(t, want, "-q", "--if", s.TapIf(), "--", "bash", "-c", "exec 3</dev/tcp/"+kit.ServerAddr+"/7000; busybox cat <&3 | sha256sum")
	}
}

// TestSoak runs forking servers, and clients that end connections in every way, with
// signals at 1 kHz. Every byte must be right, no process may hang, and lklhost must
// release all resources in the end.
func TestSoak(t *testing.T) {
	seconds, seed := kit.Setting(t, "SOAK_SECONDS", 16), kit.Setting(t, "SOAK_SEED", 1)
	for _, stack := range []string{"mptcp", "vanilla"} {
		t.Run(stack, func(t *testing.T) {
			soak := built(t, "soak")
			h := newHunt(t, false, "--stack", stack)
			run := func(seed, seconds int) {
				t.Helper()
				r := kit.Run(t, time.Duration(seconds)*time.Second+6*kit.Limit, h.inside(soak, fmt.Sprint(seed), fmt.Sprint(seconds)))
				t.Logf("%v", r)
				if r.Status != 0 || r.Signal != 0 {
					t.Fatalf("the soak, seed %d", seed)
				}
			}
			h.works()
			run(seed+1, 1) // lets lklhost create the resources that it keeps
			before := h.settled()
			run(seed, seconds/2)
			after := h.recovers(before, 4*kit.Limit)
			t.Logf("before: %v\nafter:  %v", before, after)
			h.works()
			h.end()
		})
	}
}

// TestSoakBytes runs threads that keep received bytes in pipes and sockets, with
// sendfile, splice and tee. Meanwhile, other threads exchange some of the descriptors.
// Every byte must be right. The buffers are small enough for the stack's memory: MPTCP
// drops data for which there is no memory, and retransmits it only after a minute.
func TestSoakBytes(t *testing.T) {
	seconds, seed := kit.Setting(t, "SOAK_SECONDS", 6), kit.Setting(t, "SOAK_SEED", 1)
	kit.NewSite(t)
	soak := built(t, "bytes")
	for _, r := range [][2]string{{"supervise", "mptcp"}, {"supervise", "vanilla"}, {"preload", "mptcp"}} {
		t.Run(r[0]+"/"+r[1], func(t *testing.T) {
			got := kit.Run(t, time.Duration(seconds)*time.Second+6*kit.Limit,
				kit.Lklrun("-q", "--engine", r[0], "--stack", r[1], "--sysctl", "net.ipv4.tcp_rmem=4096 131072 1048576", "--sysctl", "net.ipv4.tcp_wmem=4096 131072 1048576",
					"--", soak, "soak", fmt.Sprint(seed), fmt.Sprint(seconds)))
			t.Logf("%v", got)
			if got.Status != 0 || got.Signal != 0 {
				t.Errorf("the soak, seed %d", seed)
			}
		})
	}
}
