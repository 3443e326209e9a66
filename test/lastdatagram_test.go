// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"os"
	"testing"

	testutil "github.com/lklrun/lklrun/test/kit"
)

// TestLastDatagram checks that a datagram is not lost if its sender ends at once,
// before the stack has the datagram and before ARP or neighbour discovery has an
// answer.
func TestLastDatagram(t *testing.T) {
	s := newSite(t)
	testutil.Need(t, "socat", "nc")
	dir := testutil.Dir(t)
	for _, a := range []string{serverAddr, serverAddr6} {
		heard := testutil.Start(t, s.server.Command("socat", "-u", "UDP6-RECV:7000", "OPEN:"+dir+"/heard,creat,append"))
		testutil.WaitFor(t, "the listener", limit, func() bool { return s.server.Listening(t, "u", 7000) })
		want := ""
		for i := range 10 {
			testutil.OK(t, limit, s.onTap("sh", "-c", fmt.Sprintf("echo %d | nc -u -N -q 0 %s 7000", i, a)))
			want += fmt.Sprintln(i)
		}
		testutil.WaitFor(t, "ten datagrams to "+a, limit, func() bool {
			heard, err := os.ReadFile(dir + "/heard")
			return err == nil && len(heard) == len(want)
		})
		heard.Signal(15)
		heard.Wait(limit)
		if err := os.Remove(dir + "/heard"); err != nil {
			t.Fatal(err)
		}
	}
}
