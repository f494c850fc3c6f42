/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers and spelling for the configuration: own code, because strtoull and strtod listen to the
 * program's locale and accept more than is meant here. No state, no locking, no driver.
 */
#include "options_parse.h"

#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Like strtoull's digits: on overflow all of them are still consumed. */
static bool read_digits(const char **text, uint64_t *ret_number)
{
    uint64_t number = 0;
    bool fits = true;
    for (; is_digit(**text); (*text)++) {
        uint64_t digit = (uint64_t)(**text - '0');
        if (number > (UINT64_MAX - digit) / 10) {
            fits = false;
        } else {
            number = number * 10 + digit;
        }
    }
    *ret_number = number;
    return fits;
}

enum zone_number zone_number_read(const char *text, uint64_t *ret_number, const char **ret_rest)
{
    bool negative = *text == '-';
    if (*text == '-' || *text == '+') {
        text++;
    }
    *ret_number = 0;
    *ret_rest = text;
    if (!is_digit(*text)) {
        return ZONE_NUMBER_NONE;
    }
    bool fits = read_digits(ret_rest, ret_number);
    if (!fits) {
        return ZONE_NUMBER_TOO_BIG;
    }
    return negative ? ZONE_NUMBER_NEGATIVE : ZONE_NUMBER_OK;
}

/* e, a sign, digits: an exponent only if a digit follows, otherwise part of the rest. */
static int read_exponent(const char **text)
{
    const char *at = *text;
    if (*at != 'e' && *at != 'E') {
        return 0;
    }
    at++;
    bool negative = *at == '-';
    if (*at == '-' || *at == '+') {
        at++;
    }
    if (!is_digit(*at)) {
        return 0;
    }
    uint64_t exponent = 0;
    bool fits = read_digits(&at, &exponent);
    *text = at;
    int bounded = fits && exponent < 1000 ? (int)exponent : 1000;
    return negative ? -bounded : bounded;
}

enum zone_number zone_number_read_fraction(const char *text, uint64_t *ret_parts,
                                           const char **ret_rest)
{
    bool negative = *text == '-';
    if (*text == '-' || *text == '+') {
        text++;
    }
    *ret_parts = 0;
    *ret_rest = text;
    const char *digits = text;
    const char *at = text;
    while (is_digit(*at)) {
        at++;
    }
    int point = (int)(at - digits); /* digits before the decimal point */
    bool any = point > 0;
    const char *fraction = at;
    if (*at == '.') {
        at++;
        while (is_digit(*at)) {
            at++;
        }
        any |= at > fraction + 1;
    }
    if (!any) {
        return ZONE_NUMBER_NONE;
    }
    const char *end = at;
    point += read_exponent(&at);
    *ret_rest = at;

    /* Digit number i, counted over the point, is worth 10^(point - 1 - i). */
    uint64_t parts = 0;
    bool too_big = false;
    bool above_zero = false;
    int i = 0;
    for (const char *digit = digits; digit < end; digit++) {
        if (*digit == '.') {
            continue;
        }
        int power = point - 1 - i++ + 9; /* in parts per 10^9 */
        if (*digit == '0') {
            continue;
        }
        above_zero = true;
        if (power > 17) {
            too_big = true;
        } else if (power >= 0) {
            uint64_t worth = (uint64_t)(*digit - '0');
            for (int k = 0; k < power; k++) {
                worth *= 10;
            }
            parts += worth;
        }
    }
    if (above_zero && parts == 0) {
        parts = 1;
    }
    *ret_parts = parts;
    if (too_big) {
        return ZONE_NUMBER_TOO_BIG;
    }
    return negative && above_zero ? ZONE_NUMBER_NEGATIVE : ZONE_NUMBER_OK;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

unsigned zone_text_distance(const char *a, const char *b, unsigned limit)
{
    unsigned row[ZONE_OPTIONS_WORD + 1];
    size_t length = strlen(b);
    if (length > ZONE_OPTIONS_WORD || strlen(a) > ZONE_OPTIONS_WORD) {
        return limit;
    }
    for (unsigned j = 0; j <= length; j++) {
        row[j] = j;
    }
    for (size_t i = 0; a[i] != '\0'; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i + 1;
        for (size_t j = 0; j < length; j++) {
            unsigned replace = diagonal + (lower(a[i]) == lower(b[j]) ? 0 : 1);
            unsigned other = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = replace < other ? replace : other;
        }
    }
    return row[length] < limit ? row[length] : limit;
}
