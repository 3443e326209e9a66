// SPDX-License-Identifier: Apache-2.0

package sockfilter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// states are a set, with a bit for each state number.
type states struct {
	mask  uint32
	given bool
}

func (s states) has(state sockdiag.State) bool {
	return !s.given || state < 32 && s.mask&(1<<state) != 0
}

// Numbers of include/net/tcp_states.h.
const (
	synSent       = 1 << sockdiag.SynSent
	bucket        = 1<<sockdiag.SynRecv | 1<<sockdiag.TimeWait // stored as minisockets
	allStates     = 1<<12 - 2
	boundInactive = 1 << 13 // since Linux 6.8, and not part of ss's "all"
	connected     = allStates &^ (1<<sockdiag.Listen | 1<<sockdiag.Close | bucket)
)

// stateNames are ss's names. Its manual includes time-wait and syn-recv in "connected",
// but the program (SS_CONN of misc/ss.c) does not.
var stateNames = map[string]uint32{
	"established": 1 << sockdiag.Established, "syn-sent": synSent, "syn-recv": 1 << sockdiag.SynRecv,
	"syn-rcv": 1 << sockdiag.SynRecv, "fin-wait-1": 1 << 4, "fin-wait-2": 1 << 5,
	"time-wait": 1 << sockdiag.TimeWait, "closed": 1 << sockdiag.Close, "close": 1 << sockdiag.Close,
	"unconnected": 1 << sockdiag.Close, "close-wait": 1 << 8, "last-ack": 1 << 9,
	"listening": 1 << sockdiag.Listen, "closing": 1 << 11, "bound-inactive": boundInactive,
	"all": allStates, "connected": connected, "synchronized": connected &^ synSent,
	"bucket": bucket, "big": allStates &^ bucket,
}

// States are the names that "state" accepts, in order.
func States() []string {
	var names []string
	for name := range stateNames {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// set adds or removes the states of a name. The first call starts with an empty set, or
// with all states if it removes some.
func (s *states) set(name string, add bool) error {
	mask, ok := stateNames[strings.ToLower(name)]
	if !ok {
		return fmt.Errorf("state %q; expected one of %s", name, strings.Join(States(), ", "))
	}
	if !s.given {
		s.given = true
		s.mask = 0
		if !add {
			s.mask = allStates | boundInactive
		}
	}
	if add {
		s.mask |= mask
	} else {
		s.mask &^= mask
	}
	return nil
}
