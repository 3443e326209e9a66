// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"cmp"
	"fmt"
	"net"

	"github.com/lklrun/lklrun/internal/host/hostnet"
	"github.com/lklrun/lklrun/pkg/config"
)

// macvtap fills in the properties that the host's device determines. The MTU of
// a new macvtap is at most that of the underlying device. An existing macvtap
// keeps its properties.
func (p *Plan) macvtap(l *Link, st hostnet.MacvtapState, machine string) error {
	l.Create = !st.Exists
	most := min(st.MTU, config.MaxMTU)
	switch {
	case l.MTU > most:
		return fmt.Errorf("mtu: %d is more than that of %s, %d", l.MTU, st.Name, most)
	case l.MTU == 0:
		l.MTU = most
	}
	if !st.Up {
		p.note("%s is down on the host, so %s will carry nothing: `ip link set %[1]s up`", st.Name, l.Name)
	}
	if st.Wireless {
		p.note("%s is wireless: most access points take frames from its own address only; if %s reaches nobody, use user, or tap with nat", st.Name, l.Name)
	}
	if !st.Exists {
		if l.MAC.IsZero() && len(l.Addrs) == 0 { // one device may have several macvtaps
			l.MAC = stableMAC(machine+" "+l.Name, &config.Interface{Type: l.Type, Device: l.Device})
		}
		return nil
	}
	if l.Mode != "" {
		return fmt.Errorf("mode: macvtap %s exists and has its mode; leave it out", st.Name)
	}
	if !l.MAC.IsZero() && !bytes.Equal(l.MAC[:], st.MAC) {
		return fmt.Errorf("mac: macvtap %s has %v and keeps it; leave mac out", st.Name, net.HardwareAddr(st.MAC))
	}
	copy(l.MAC[:], st.MAC)
	return nil
}

// macvtapStep describes the step for the macvtap on the host and its undo.
func macvtapStep(l *Link) (do, undo string) {
	if !l.Create {
		return fmt.Sprintf("attach to macvtap %s as %s", l.Device, l.Name), "detach"
	}
	return fmt.Sprintf("make a macvtap on %s, mode %s, mtu %d, up, as %s", l.Device, cmp.Or(l.Mode, config.ModeBridge), l.MTU, l.Name), "delete it"
}
