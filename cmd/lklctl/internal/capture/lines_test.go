// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/pkg/capture"
)

// echo is an ICMP echo request.
const echo = "\x45\x00\x00\x1c\x00\x01\x00\x00\x40\x01\x66\xde\x0a\x00\x00\x01\x0a\x00\x00\x02\x08\x00\xf7\xfd\x00\x01\x00\x01"

// Without -w, there is a line or a JSON object per packet, with tcpdump's text.
func TestCaptureLines(t *testing.T) {
	if _, err := exec.LookPath("tcpdump"); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	at := time.Unix(1700000000, 123456789)
	for _, c := range []struct {
		want    string
		several bool
		o       captureOptions
		output  cli.Output
	}{
		{`^\d\d:\d\d:20\.123456 eth0 Out IP 10\.0\.0\.1 > 10\.0\.0\.2: ICMP echo request, id 1, seq 1, length 8  \[ping\(42\) a\.b\]\n.* wg0 In  IP 10.*length 8\n$`, false, captureOptions{}, ""},
		{`^web/eth0 Out IP .*\nweb/wg0 In  IP .*\n$`, true, captureOptions{stamps: 1}, ""},
		{`^1700000000\.123456 Out IP .*\n1700000001\.123456 In  IP `, false, captureOptions{stamps: 2, interfaces: []string{"eth0"}}, ""},
		{`^ 00:00:00\.000000 eth0 Out IP .*\n 00:00:01\.000000 wg0 In`, false, captureOptions{stamps: 3}, ""},
		{`^20\d\d-\d\d-\d\d \d\d:\d\d:20\.123456 eth0 Out`, false, captureOptions{stamps: 4}, ""},
		{`^eth0 Out 02:.* ethertype IPv4 \(0x0800\), length 42: \(tos .*\]\n    10\.0\.0\.1 > .*\n\t0x0000:  `, false, captureOptions{stamps: 1, link: true, verbose: 1, hex: true}, ""},
		{`^{"time":"[^"]*","instance":"web","interface":"eth0","direction":"out","length_bytes":42,"captured_bytes":42,` +
			`"text":"IP [^"]*","pid":42,"process":"ping","comment":"ping\(42\) a\\nb"}\n{.*"interface":"wg0".*}\n$`, false, captureOptions{hex: true, verbose: 1}, cli.OutputJSON},
	} {
		var out strings.Builder
		l, err := newLines(&verb.Call{Stdout: &out, Output: c.output}, &c.o, c.several)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range []capture.Interface{{Name: "eth0", LinkType: capture.LinkTypeEthernet}, {Name: "wg0", LinkType: capture.LinkTypeRaw}} {
			m.Instance = "web"
			if err := l.Interface(&capture.Member{Interface: m, Number: i}); err != nil {
				t.Fatal(err)
			}
		}
		frame := "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00" + echo
		err = l.Packets([]capture.Packet{
			{Time: at, Length: len(frame), Data: []byte(frame), Dir: capture.Out, Owner: &capture.Owner{PID: 42, Comm: "ping"}, Comment: "ping(42) a\nb"},
			{Time: at.Add(time.Second), Interface: 1, Length: len(echo), Data: []byte(echo), Dir: capture.In},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.finish(); err != nil || !regexp.MustCompile(c.want).MatchString(out.String()) {
			t.Errorf("%+v: %v, expected %s:\n%s", c.o, err, c.want, out.String())
		}
	}
}
