// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/error_keeps_datagrams.py
var errorKeepsDatagrams string

// TestErrorKeepsDatagrams checks that datagrams which wait for the stack are not lost if
// an earlier one fails.
func TestErrorKeepsDatagrams(t *testing.T) {
	kit.Need(t, "/usr/bin/python3", "tc")
	for _, engine := range []string{"supervise", "trace"} {
		t.Run(engine, func(t *testing.T) {
			got := strings.Fields(kit.OK(t, kit.Limit, kit.Lklrun("-q", "--engine", engine, "--", "/usr/bin/python3", "-c", errorKeepsDatagrams)))
			for n, number := range got {
				if number != strconv.Itoa(n) {
					t.Fatalf("not in order: %v", got)
				}
			}
		})
	}
}

// TestLastDatagram checks that a datagram is not lost if its sender ends at once,
// before the stack has the datagram and before ARP or neighbour discovery has an
// answer.
func TestLastDatagram(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "socat", "nc")
	dir := kit.Dir(t)
	for _, a := range []string{kit.ServerAddr, kit.ServerAddr6} {
		heard := kit.Start(t, s.Server.Command("socat", "-u", "UDP6-RECV:7000", "OPEN:"+dir+"/heard,creat,append"))
		kit.WaitFor(t, "the listener", kit.Limit, func() bool { return s.Server.Listening(t, "u", 7000) })
		want := ""
		for i := range 10 {
			kit.OK(t, kit.Limit, s.OnTap("sh", "-c", fmt.Sprintf("echo %d | nc -u -N -q 0 %s 7000", i, a)))
			want += fmt.Sprintln(i)
		}
		kit.WaitFor(t, "ten datagrams to "+a, kit.Limit, func() bool {
			heard, err := os.ReadFile(dir + "/heard")
			return err == nil && len(heard) == len(want)
		})
		heard.Signal(15)
		heard.Wait(kit.Limit)
		if err := os.Remove(dir + "/heard"); err != nil {
			t.Fatal(err)
		}
	}
}
