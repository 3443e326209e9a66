// SPDX-License-Identifier: Apache-2.0

package stackconn_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// A stack host that cannot run reports why and closes the connection, before or after the
// greeting: its message is the error.
func TestRefused(t *testing.T) {
	for name, greeted := range map[string]bool{"before the greeting": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
			nc, err := net.FileConn(ours)
			ours.Close()
			if err != nil {
				t.Fatal(err)
			}
			refuse := func() {
				event := ctlproto.Event{Kind: ctlproto.CTL_EV_WARN, Text: "no such library"}
				b, err := ctlproto.Frame{Type: ctlproto.CTL_EVENT, Body: event.Append(nil)}.Append(nil)
				if err != nil {
					t.Error(err)
				}
				if _, err := theirs.Write(b); err != nil {
					t.Error(err)
				}
				theirs.Close()
			}
			if greeted {
				go func() {
					if _, err := ctlproto.ReadFrame(theirs); err != nil {
						t.Error(err)
					}
					refuse()
				}()
			} else {
				refuse()
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, err = stackconn.New(ctx, nc.(*net.UnixConn))
			var refused *stackconn.StartError
			if !errors.As(err, &refused) || refused.Words != "no such library" {
				t.Errorf("%v", err)
			}
		})
	}
}
