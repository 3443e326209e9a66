// SPDX-License-Identifier: Apache-2.0

package suggest

import "testing"

func TestOr(t *testing.T) {
	known := []string{"mptcp", "mobile", "bulk", "bbr", "netstat", "--stack", "--stay", "net.ipv4.tcp_congestion_control"}
	for typed, want := range map[string]string{
		"mptpc":                          "did you mean mptcp?",
		"mobil":                          "did you mean mobile?",
		"netsat":                         "did you mean netstat?",
		"--stak":                         "did you mean --stack?",
		"net.ipv4.tcp_congestion_contrl": "did you mean net.ipv4.tcp_congestion_control?",
		"xyz":                            "",
		"":                               "",
		"bbr":                            "",
	} {
		if got := Suggest(typed, known, ""); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
