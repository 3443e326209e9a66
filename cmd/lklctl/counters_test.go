// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/diag/counters/prom"
	"github.com/lklrun/lklrun/test/kit"
)

func TestCounters(t *testing.T) {
	site(t, "web")
	all := decode[map[string]int64](t, "counters")
	for name, least := range map[string]int64{
		"TcpActiveOpens": 3, "MPTcpExtMPCapableSYNTX": 2, "lo.rx_bytes": 100, "engine.loop.turns": 3, "UdpInErrors": 0,
		"sockstat.TCP_inuse": 1, "softnet0.processed": 0, "lo.qdisc.root.drops": 0,
	} {
		if n, ok := all[name]; !ok || n < least {
			t.Errorf("%s is %d (%v), want at least %d", name, n, ok, least)
		}
	}
	if _, ok := all["TcpNoSuch"]; ok || len(all) < 200 {
		t.Errorf("%d counters", len(all))
	}
	text := ok(t, "counters")
	if !strings.Contains(text, "TcpActiveOpens") || strings.Contains(text, "UdpInErrors") {
		t.Errorf("table:\n%s", text)
	}
	if text := ok(t, "counters", "-z"); !strings.Contains(text, "UdpInErrors") {
		t.Error("-z leaves zeros out")
	}
	if text := ok(t, "counters", "udpinerr"); !strings.Contains(text, "UdpInErrors") || strings.Contains(text, "Tcp") {
		t.Errorf("with a pattern:\n%s", text)
	}
	if r := lklctl(t, "counters", "Nothing"); r.status != 1 || !strings.Contains(r.errors, "no matching counter") {
		t.Errorf("no counter: %+v", r)
	}
	if text := ok(t, "counters", "TcpActiveOpens", "lo.rx_bytes", "-o", "prom"); !strings.Contains(text, "# TYPE lklrun_TcpActiveOpens_total counter\n") ||
		!strings.Contains(text, `lklrun_interface_rx_bytes_total{instance="web",interface="lo"} `) || strings.Count(text, "# HELP") != 2 {
		t.Errorf("-o prom:\n%s", text)
	}
	if r := lklctl(t, "__complete", "counters", "MPTcpExtMPJoinSynT"); !strings.HasPrefix(r.out, "MPTcpExtMPJoinSynTx\n") {
		t.Errorf("completion: %+v", r)
	}
}

// counters -d and --around show what has changed since the last call, or during
// a command.
func TestCounterDifferences(t *testing.T) {
	stack, dir := instanceOf(t, "web")
	type change struct{ Value, Difference int64 }
	touch := func(n int) {
		stack.Run(t, "ip", "link", "set", "lo", "up")
		stack.Run(t, "ping", "-c", fmt.Sprint(n), "-i", "0.01", "127.0.0.1")
	}
	touch(2)
	const echos = "IcmpInEchos"
	if got := decode[map[string]change](t, "counters", "-d", echos); got[echos] != (change{2, 2}) {
		t.Errorf("the first time: %v", got)
	}
	touch(3)
	if got := decode[map[string]change](t, "counters", "-d", echos); got[echos] != (change{5, 3}) {
		t.Errorf("since then: %v", got)
	}
	if r := lklctl(t, "counters", "-d", "--fail-empty", echos); r.status != 1 || !strings.Contains(r.errors, "no matching counter has changed") {
		t.Errorf("nothing since then: %+v", r)
	}
	if text := ok(t, "counters", "-d", "-z", echos); !strings.Contains(text, "CHANGE") || !strings.Contains(text, echos) {
		t.Errorf("-z: %s", text)
	}
	if left, _ := filepath.Glob(dir.Path + "/counters.json*"); len(left) != 1 {
		t.Errorf("files: %v", left)
	}

	r := lklctl(t, "counters", "Icmp", "--around", "--", "nsenter", "-n", "-t", fmt.Sprint(stack.PID), "ping", "-q", "-c", "4", "-i", "0.01", "127.0.0.1")
	if r.status != 0 || !strings.Contains(r.errors, echos) {
		t.Errorf("around a command: %+v", r)
	}
	var report struct {
		Command []string
		Status  int
		Signal  string
		Changes map[string]change
	}
	r = lklctl(t, "counters", "-o", "json", "--around", "--", "sh", "-c", "exit 7")
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.status != 7 || report.Status != 7 || len(report.Command) != 3 {
		t.Errorf("a status: %+v, %v", r, err)
	}
	r = lklctl(t, "counters", "-o", "json", "--around", "--", "sh", "-c", "kill $$")
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || report.Signal != "SIGTERM" {
		t.Errorf("a signal: %+v, %v", r, err)
	}
	refused(t, 2, []string{"counters", "--around", "--", "/no/such/program"}, "/no/such/program")
}

func TestCounterWatch(t *testing.T) {
	instanceOf(t, "web")
	got := watched(t, []string{"counters", "--watch=0.05", "-o", "json", "engine.loop"}, func(r *bufio.Reader) {
		for n := range 3 {
			var all map[string]counters.Change
			text := line(t, r)
			if err := json.Unmarshal([]byte(text), &all); err != nil {
				t.Errorf("%q: %v", text, err)
				return
			}
			turns := all["engine.loop.turns"]
			if n == 0 && turns.PerSecond != nil || n > 0 && (turns.PerSecond == nil || *turns.PerSecond <= 0) {
				t.Errorf("round %d: %s", n, text)
			}
		}
	})
	if got.status != 0 || got.errors != "" {
		t.Errorf("stopped: %+v", got)
	}
}

// counters --listen serves Prometheus' format for all instances over HTTP.
func TestCounterListen(t *testing.T) {
	instanceOf(t, "web")
	instanceOf(t, "db")
	kit.Host.Run(t, "ip", "link", "set", "lo", "up")
	got := watched(t, []string{"counters", "--listen", "0"}, func(r *bufio.Reader) {
		url := strings.TrimSpace(line(t, r))
		if !strings.HasPrefix(url, "http://127.0.0.1:") {
			t.Errorf("it listens at %s", url)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.Header.Get("Content-Type") != prom.ContentType {
			t.Fatalf("%v %v", answer.Header, err)
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
		if err != nil {
			t.Fatalf("%v in\n%s", err, body)
		}
		if f := families["lklrun_TcpInSegs_total"]; len(f.GetMetric()) != 2 || f.GetHelp() == "" {
			t.Errorf("two instances: %v", f)
		}
	})
	if got.status != 0 || got.errors != "" {
		t.Errorf("stopped: %+v", got)
	}
}

// counters --listen follows the same rules as web. It requires the token. It
// rejects host names, because an attacker could point a name at this address. Other
// machines can reach it only with --public.
func TestFinding13Listen(t *testing.T) {
	instanceOf(t, "web")
	kit.Host.Run(t, "ip", "link", "set", "lo", "up")
	if r := lklctl(t, "counters", "--listen", "0.0.0.0:0"); r.status != 2 || !strings.Contains(r.errors, "other machines can reach this address, and the connection is not encrypted; add --public") {
		t.Errorf("an address that others reach: %+v", r)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789-abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(url, host string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	for _, c := range []struct {
		args           []string
		token, warning string
	}{
		{[]string{"--listen", "0"}, "", ""},
		{[]string{"--listen", "127.0.0.1:0", "--token-file", file}, "0123456789-abcdef", ""},
		{[]string{"--listen", "0.0.0.0:0", "--public"}, "", "warning: other machines can connect"},
	} {
		got := watched(t, append([]string{"counters"}, c.args...), func(r *bufio.Reader) {
			url := strings.TrimSpace(line(t, r))
			parts := strings.Split(url, "/") // http: // address / token / metrics
			if len(parts) != 5 || parts[4] != "metrics" || len(parts[3]) < 16 || c.token != "" && parts[3] != c.token {
				t.Fatalf("it is served at %s", url)
			}
			base := strings.Join(parts[:3], "/")
			for _, q := range []struct {
				url, host string
				status    int
				body      string
			}{
				{url, parts[2], 200, "# HELP"},
				{url, "localhost", 200, "# HELP"},
				{url, "evil.example", 403, "lklctl counters: use its IP address"},
				{base + "/metrics", parts[2], 403, "lklctl counters: no valid token"},
				{base + "/", parts[2], 403, "lklctl counters: no valid token"},
				{base + "/0123456789-abcdeg/metrics", parts[2], 403, "lklctl counters: no valid token"},
			} {
				if status, body := ask(q.url, q.host); status != q.status || !strings.HasPrefix(body, q.body) {
					t.Errorf("%s of %s: %d, %.60q", q.url, q.host, status, body)
				}
			}
		})
		if got.status != 0 || !strings.Contains(got.errors, c.warning) || c.warning == "" && got.errors != "" {
			t.Errorf("stopped: %+v", got)
		}
	}
}

func TestCounterExplain(t *testing.T) {
	kit.Need(t)
	if text := ok(t, "counters", "explain", "eth0.rx_dropped"); !strings.Contains(text, "interface.rx_dropped") || strings.Count(text, "\n") > 4 {
		t.Errorf("of an interface:\n%s", text)
	}
	all := decode[[]counters.Explanation](t, "counters", "explain")
	if len(all) < 400 {
		t.Errorf("%d explanations", len(all))
	}
	if r := lklctl(t, "counters", "explain", "NoSuch"); r.status != 1 || !strings.Contains(r.errors, "NoSuch") {
		t.Errorf("none: %+v", r)
	}
	if r := lklctl(t, "__complete", "counters", "explain", "TcpExtTCPLossProbeR"); !strings.HasPrefix(r.out, "TcpExtTCPLossProbeRecovery\n") {
		t.Errorf("completion: %+v", r)
	}
}
