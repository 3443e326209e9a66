// SPDX-License-Identifier: Apache-2.0

package ctlproto

// Ask is struct ctl_ask with the text that follows it: a question for lklrun, sent to
// lklhost (CTL_ASK) or from lklhost to lklrun (CTL_ASKED).
type Ask struct {
	Serial uint32 // 0 in CTL_ASK
	Flags  uint32 // CTL_ASKF_*
	Text   []byte
}

const askSize = 8

// Append appends the message in wire format to b.
func (m Ask) Append(b []byte) []byte {
	b = le.AppendUint32(b, m.Serial)
	b = le.AppendUint32(b, m.Flags)
	return append(b, m.Text...)
}

// Unmarshal decodes the body of a CTL_ASK request or of CTL_ASKED.
func (m *Ask) Unmarshal(b []byte) error {
	if len(b) < askSize {
		return short("question", len(b), askSize)
	}
	*m = Ask{Serial: le.Uint32(b), Flags: le.Uint32(b[4:]), Text: b[askSize:]}
	return nil
}

// Answer is struct ctl_answer with the text that follows it.
type Answer struct {
	Serial uint32
	Status int32 // 0 or a negative errno
	Text   []byte
}

// Append appends the message in wire format to b.
func (m Answer) Append(b []byte) []byte {
	b = le.AppendUint32(b, m.Serial)
	b = le.AppendUint32(b, uint32(m.Status))
	return append(b, m.Text...)
}
