// SPDX-License-Identifier: Apache-2.0

package diag_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestConnectionMetrics checks that the metrics of `lklctl counters --listen` have the
// limit and the quality of a connection, and that those of its peer do not blame it.
func TestConnectionMetrics(t *testing.T) {
	wire := kit.NewName()
	end := func(n int) *kit.Talker {
		return newEnd(t, "--stack", "vanilla", "--if", fmt.Sprintf("wire:%s,ip=10.97.0.%d/24", wire, n))
	}
	sender, receiver := end(1), end(2)
	receiver.Say("receive(5000, dict(chunk=20000, pause=0.1))")
	sender.Say("send('10.97.0.2', 5000, dict())")
	p := kit.Start(t, exec.Command(kit.Bin("lklctl"), "counters", "--listen", "0"))
	kit.WaitFor(t, "the address", kit.Limit, func() bool { out, _ := p.Output(); return strings.HasSuffix(out, "\n") || !p.Running() })
	url, _ := p.Output()
	var text string
	value := func(k *kit.Talker, metric, labels string) float64 {
		m := regexp.MustCompile(fmt.Sprintf(`lklrun_connections_%s\{instance="%s",%s\} (\S+)`, metric, k.Name, labels)).FindStringSubmatch(text)
		if m == nil {
			return 0
		}
		n, err := strconv.ParseFloat(m[1], 64)
		kit.Must(t, err)
		return n
	}
	limited := func(k *kit.Talker, direction, limit string) float64 {
		return value(k, "limited_us_total", fmt.Sprintf(`direction="%s",limit="%s",interface=""`, direction, limit))
	}
	kit.WaitFor(t, "two seconds of limits at both ends", kit.Limit, func() bool {
		text = get(t, strings.TrimSpace(url))
		return limited(sender, "send", "peer-window") > 2e6 && limited(receiver, "receive", "program-reads") > 2e6
	})
	if n := limited(receiver, "receive", "peer"); n > limited(receiver, "receive", "program-reads") {
		t.Errorf("the peer limits for %g us", n)
	}
	for _, k := range []*kit.Talker{sender, receiver} {
		if n := value(k, "open", `interface="eth0"`); n != 1 {
			t.Errorf("%s has %g connections", k.Name, n)
		}
	}
	if value(sender, "rtt_us", `interface="eth0"`) <= 0 || value(sender, "segments", `interface="eth0"`) <= 0 {
		t.Error("no round-trip time, or no segments")
	}
	if t.Failed() {
		t.Log(text)
	}
}

// get returns the body of a page.
func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	kit.Must(t, err)
	answer, err := http.DefaultClient.Do(req)
	kit.Must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	kit.Must(t, err)
	return string(body)
}
