package l7

// overlong returns the ASCII character that s begins with in more bytes of UTF-8
// than the one that it needs, and how many those are; 0 if it does not.
func overlong(s string) (char byte, size int) {
	next := func(i int) (byte, bool) {
		if i < len(s) && s[i]&0xc0 == 0x80 {
			return s[i] & 0x3f, true
		}
		return 0, false
	}
	if len(s) == 0 {
		return 0, 0
	}
	zeros := 0 // continuation bytes that hold nothing
	high, lead := byte(0), s[0]
	switch lead {
	case 0xc0, 0xc1:
		high = lead & 1
	case 0xe0:
		zeros = 1
	case 0xf0:
		zeros = 2
	default:
		return 0, 0
	}
	for i := 1; i <= zeros; i++ {
		b, ok := next(i)
		if !ok || b > 1 || b == 1 && i < zeros {
			return 0, 0
		}
		high = b
	}
	low, ok := next(zeros + 1)
	if !ok {
		return 0, 0
	}
	return high<<6 | low, zeros + 2
}

func isOverlong(s string) bool {
	_, size := overlong(s)
	return size > 0
}

func hasOverlong(s string) bool {
	for i := range len(s) {
		if s[i] >= 0xc0 && isOverlong(s[i:]) {
			return true
		}
	}
	return false
}

// shortened writes what s has in overlong UTF-8 as the characters themselves,
// those that decode has a form for in that form.
func (c reading) shortened(s string) string {
	if c&shorten == 0 || !hasOverlong(s) {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		char, size := overlong(s[i:])
		switch {
		case size == 0:
			char, size = s[i], 1
			b = append(b, char)
		case char == '%' && c&decodeAgain == 0:
			b = append(b, "%25"...)
		case char == '\\' && c&splitEncoded != 0:
			b = append(b, '/')
		default:
			b = append(b, char)
		}
		i += size
	}
	return string(b)
}
