// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/drops"
)

// TestWrite checks that the table and the meanings fit in a terminal of 80 columns, and
// have one line each in a pipe.
func TestWrite(t *testing.T) {
	r := drops.Record{
		Time: time.Unix(0, 0), Kind: drops.Drop, Reason: "TCP_INVALID_SEQUENCE", Meaning: "the sequence number is outside the window of the receiver, so the segment is old or forged",
		Function: "tcp_validate_incoming", Interface: "eth0", Bytes: 1514, Family: "inet6", Protocol: "tcp", Flags: "P.", Process: "python3", PID: 4194303,
		Source: netip.MustParseAddrPort("[2001:db8:1234:5678::1]:54321"), Destination: netip.MustParseAddrPort("[2001:db8::2]:443"),
	}
	for width, lines := range map[int]int{0: 4, 80: 0} {
		var b strings.Builder
		if err := write(cli.Screen{Writer: &b, Width: width}, []drops.Record{r}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > 0 && n > width {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		if n := strings.Count(b.String(), "\n"); lines > 0 && n != lines {
			t.Errorf("%d lines:\n%s", n, b.String())
		}
		for _, word := range strings.Fields(r.Meaning + " " + r.Function + " " + r.Packet()) {
			if !strings.Contains(b.String(), word) {
				t.Errorf("without %q:\n%s", word, b.String())
			}
		}
		t.Log("\n" + b.String())
	}
}
