// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestRelay checks that the relay of containers passes on everything that a program sends
// before its end, which is the end of the run. kube/test/cri tests the rest of the relay.
func TestRelay(t *testing.T) {
	const server = `import socket
l = socket.create_server(("127.0.0.1", 80))
c, _ = l.accept()
c.sendall(bytes(range(256)) * 80000)`
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	want := bytes.Repeat(all, 80000)
	kit.Need(t, "python3", "ip", kit.Bin("lklrun"))
	host := kit.NewNetns(t, "host")
	run := kit.Start(t, host.Command(kit.Bin("lklrun"), "-q", "--relay-loopback", "--if", "wire:relay", "--", "python3", "-c", server))
	var c net.Conn
	kit.WaitFor(t, "the relay", kit.Limit, func() bool {
		return host.Enter(func() (err error) {
			c, err = net.Dial("tcp", "127.0.0.1:80")
			return err
		}) == nil
	})
	defer c.Close()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes have arrived, expected %d (%v)", len(got), len(want), err)
	}
	if r := run.Wait(kit.Limit); r.Status != 0 {
		t.Errorf("the run: %v", r)
	}
}
