// SPDX-License-Identifier: Apache-2.0

package sysctl_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/diag/sysctl"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

const conf = `# a comment
; another
net.ipv4.ip_default_ttl = 63
  -net.ipv4.no_such=1
net/ipv4/conf/*/rp_filter = 2
-net.ipv4.conf.lo.rp_filter
net.ipv4.tcp_rmem = 4096 8192	16384
`

func TestParse(t *testing.T) {
	lines, err := sysctl.Parse(strings.NewReader(conf), "f")
	want := []sysctl.Line{
		{Where: "f:3", Key: "net.ipv4.ip_default_ttl", Value: "63"},
		{Where: "f:4", Key: "net.ipv4.no_such", Value: "1", Ignore: true},
		{Where: "f:5", Key: "net/ipv4/conf/*/rp_filter", Value: "2"},
		{Where: "f:6", Key: "net.ipv4.conf.lo.rp_filter", Except: true},
		{Where: "f:7", Key: "net.ipv4.tcp_rmem", Value: "4096 8192	16384"},
	}
	if err != nil || !slices.Equal(lines, want) {
		t.Errorf("%+v, %v", lines, err)
	}
	for text, says := range map[string]string{
		"net.ipv4.ip_forward":    "f:1: sysctl \"net.ipv4.ip_forward\"; expected KEY=VALUE",
		"\nnet..x=1":             "f:2: sysctl \"net..x\"; expected a key",
		"net.[x=1":               "expected a glob",
		strings.Repeat("x", 1e5): "f: ",
	} {
		if _, err := sysctl.Parse(strings.NewReader(text), "f"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: %v, want %s", text, err, says)
		}
	}
}

// Parse must be able to read the output of Save.
func FuzzParse(f *testing.F) {
	f.Add(conf)
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := sysctl.Parse(strings.NewReader(text), "f")
		if err != nil {
			return
		}
		for _, l := range lines {
			if _, err := stacknet.SysctlPath(l.Key); err != nil {
				t.Errorf("%+v: %v", l, err)
			}
		}
	})
}

func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func get(t *testing.T, c *stackconn.Conn, key string) string {
	t.Helper()
	v, err := stacknet.GetSysctl(limit(t), c, key)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(v), " ")
}

// apply plans and makes the changes in a file.
func apply(t *testing.T, c *stackconn.Conn, text string, ignore bool) ([]sysctl.Change, error) {
	t.Helper()
	lines, err := sysctl.Parse(strings.NewReader(text), "f")
	if err != nil {
		t.Fatal(err)
	}
	changes, err := sysctl.Plan(limit(t), c, lines, ignore)
	if err == nil {
		err = sysctl.Apply(limit(t), c, changes)
	}
	return changes, err
}

func TestApply(t *testing.T) {
	c := lklhost.OnHost(t).Dial(t)
	changes, err := apply(t, c, conf+"net.ipv4.route.flush = 1\nnet.ipv4.conf.all.rp_filter=1\n", false)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"net.ipv4.ip_default_ttl": "63", "net.ipv4.tcp_rmem": "4096 8192 16384", "net.ipv4.conf.default.rp_filter": "2", "net.ipv4.conf.all.rp_filter": "1",
	} {
		if got := get(t, c, key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	for _, ch := range changes {
		if ch.Differs() || (ch.Error != "") != (ch.Key == "net.ipv4.no_such") {
			t.Errorf("%+v", ch)
		}
	}

	// The last line wins, whatever the value was before.
	was := get(t, c, "net.ipv4.ip_default_ttl")
	if _, err = apply(t, c, "net.ipv4.ip_default_ttl=62\nnet.ipv4.ip_default_ttl="+was, false); err != nil || get(t, c, "net.ipv4.ip_default_ttl") != was {
		t.Errorf("of two lines for one setting the last: %v, %s", err, get(t, c, "net.ipv4.ip_default_ttl"))
	}
	if _, err = apply(t, c, "net.ipv4.ip_forward=1\nnet.ipv4.conf.lo.forwarding=0", false); err != nil || get(t, c, "net.ipv4.conf.lo.forwarding") != "0" {
		t.Errorf("after a setting that sets others: %v", err)
	}

	// The stack refuses the second change. The first setting gets its old value
	// again, and the third is never written.
	_, err = apply(t, c, "net.ipv4.ip_default_ttl=61\nnet.ipv4.tcp_syn_retries=1000\nnet.ipv4.tcp_ecn=1\n", false)
	if err == nil || !strings.Contains(err.Error(), "f:2: sysctl net.ipv4.tcp_syn_retries=1000") || !strings.Contains(err.Error(), "1 to 127") || !strings.Contains(err.Error(), "earlier changes undone: 1") {
		t.Errorf("refused: %v", err)
	}
	if get(t, c, "net.ipv4.ip_default_ttl") != "63" || get(t, c, "net.ipv4.tcp_ecn") == "1" {
		t.Error("half of it was done")
	}
	if changes, err = apply(t, c, "net.ipv4.tcp_syn_retries=1000\nnet.ipv4.ip_default_ttl=61\n", true); err != nil || changes[0].Error == "" || get(t, c, "net.ipv4.ip_default_ttl") != "61" {
		t.Errorf("ignored: %+v, %v", changes, err)
	}
	// Nothing is written if a setting does not exist or is read-only.
	for _, bad := range []string{"net.ipv4.no_such=1", "net.ipv4.tcp_available_congestion_control=x", "net.ipv4=1", "net.no_*=1"} {
		if _, err = apply(t, c, "net.ipv4.ip_default_ttl=60\n"+bad, false); err == nil || !strings.Contains(err.Error(), "f:2: ") || get(t, c, "net.ipv4.ip_default_ttl") != "61" {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err = apply(t, c, "net.ipv4.tcp_congestion_control=none", false); err == nil || !strings.Contains(err.Error(), "one of ") || !strings.Contains(err.Error(), "reno") {
		t.Errorf("the choice: %v", err)
	}
	// The kernel changes this value, because it joins adjacent reserved ports.
	if changes, err = apply(t, c, "net.ipv4.ip_local_reserved_ports=8,9,10", false); err != nil || !changes[0].Differs() || *changes[0].New != "8-10" {
		t.Errorf("changed by the kernel: %+v, %v", changes, err)
	}
}

// Loading saved settings changes nothing.
func TestSave(t *testing.T) {
	c := lklhost.OnHost(t).Dial(t)
	ctx := limit(t)
	all, err := sysctl.Below(ctx, c, "net.ipv4", func(key string) bool { return sysctl.Writable(ctx, c, key) })
	if err != nil || len(all) < 100 {
		t.Fatalf("%d settings, %v", len(all), err)
	}
	var b strings.Builder
	if left, err := sysctl.Save(&b, append(all, sysctl.Setting{Key: "x", Value: "a\nb"})); err != nil || !slices.Equal(left, []string{"x"}) {
		t.Fatal(left, err)
	}
	changes, err := apply(t, c, b.String(), false)
	if err != nil || len(changes) != len(all) {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	for _, ch := range changes {
		if !ch.Same() {
			t.Errorf("%+v", ch)
		}
	}
}
