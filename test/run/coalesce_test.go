// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/coalesce_client.py
var coalesceClient string

// TestCoalesce checks that --coalesce wakes a program up less than a third as often while it
// receives from a slow server, and that all bytes arrive.
func TestCoalesce(t *testing.T) {
	const pieces, size = 1500, 8 << 10 // a piece each millisecond: 65 Mbit/s
	s := kit.NewSite(t)
	l := s.Server.Listen(t, kit.ServerAddr+":0")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			pace := time.NewTicker(time.Millisecond)
			for n := range pieces {
				<-pace.C
				if _, err := c.Write(bytes.Repeat([]byte{byte(n)}, size)); err != nil {
					break
				}
			}
			pace.Stop()
			c.Close()
		}
	}()
	sum := sha256.New()
	for n := range pieces {
		sum.Write(bytes.Repeat([]byte{byte(n)}, size))
	}
	want := fmt.Sprintf("%x", sum.Sum(nil))
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"supervise", "preload"} {
		wakes := map[string]int{}
		for _, us := range []string{"0", "20000"} {
			out := kit.OK(t, kit.Limit, kit.Lklrun("-q", "--engine", engine, "--coalesce", us, "--if", s.TapIf(), "--",
				"/usr/bin/python3", "-c", coalesceClient, kit.ServerAddr, port))
			got, count, _ := strings.Cut(strings.TrimSpace(out), " ")
			if got != want {
				t.Errorf("--engine %s --coalesce %s: wrong bytes", engine, us)
			}
			if wakes[us], err = strconv.Atoi(count); err != nil {
				t.Fatalf("%q: %v", out, err)
			}
		}
		t.Logf("%s: %v", engine, wakes)
		if 3*wakes["20000"] > wakes["0"] {
			t.Errorf("--engine %s: %d wake-ups with --coalesce, %d without", engine, wakes["20000"], wakes["0"])
		}
	}
	kit.OneLine(t, kit.Run(t, kit.Limit, kit.Lklrun("--coalesce", "100001", "--", "true")), 2, `--coalesce "100001"; expected microseconds, from 0 to 100000`)
}

//go:embed testdata/coalesce_sender.py
var coalesceSender string

// TestCoalesceSends checks that with --coalesce a program sends large frames over a slow
// link, because the acknowledgements that have gathered are answered together. It checks
// that all bytes arrive.
func TestCoalesceSends(t *testing.T) {
	// If each acknowledgement is answered at once, frames have 27 to 35 KB, and without
	// --coalesce 17 KB.
	const size, enough = 20 << 20, 40 << 10
	s := kit.NewSite(t)
	kit.Host.Rate(t, "v0", "100mbit")
	l := s.Server.Listen(t, kit.ServerAddr+":0")
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	sums := make(chan string, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			sum := sha256.New()
			_ = c.SetDeadline(time.Now().Add(kit.Limit))
			_, _ = io.Copy(sum, c) // an error changes the sum
			c.Close()
			sums <- fmt.Sprintf("%x", sum.Sum(nil))
		}
	}()
	for _, engine := range []string{"supervise", "preload"} {
		frames, bytes := tapCount(t, "rx_packets"), tapCount(t, "rx_bytes")
		out := kit.OK(t, kit.Limit, kit.Lklrun("-q", "--engine", engine, "--coalesce", "40000", "--if", s.TapIf(), "--",
			"/usr/bin/python3", "-c", coalesceSender, kit.ServerAddr, port, strconv.Itoa(size)))
		if got := <-sums; got != strings.TrimSpace(out) {
			t.Errorf("--engine %s: wrong bytes", engine)
		}
		frame := (tapCount(t, "rx_bytes") - bytes) / (tapCount(t, "rx_packets") - frames)
		t.Logf("%s: %d bytes per frame", engine, frame)
		if frame < enough {
			t.Errorf("--engine %s: frames of %d bytes, expected at least %d", engine, frame, enough)
		}
	}
}

// tapCount returns a counter of the site's tap on the host: what the stack has sent.
func tapCount(t *testing.T, name string) int {
	t.Helper()
	b, err := os.ReadFile("/sys/class/net/tap0/statistics/" + name)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
