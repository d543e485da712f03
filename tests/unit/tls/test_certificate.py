"""Names as Java's X500Principal writes them; what is expected here is what Java 17 has answered for the same certificates."""

import warnings
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type as Kind
from cryptography.x509.oid import NameOID, ObjectIdentifier

from kvota.tls.certificate import CertificateFormatError, read_certificate

KEY = ec.generate_private_key(ec.SECP256R1())
CN, OU, O, C = (  # noqa: E741
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.COUNTRY_NAME,
)
ENDS = datetime(2055, 6, 7, 8, 9, 10, tzinfo=UTC)
Part = tuple[ObjectIdentifier, str] | tuple[ObjectIdentifier, str, Kind]


def certificate(*name: tuple[Part, ...]) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [
            x509.RelativeDistinguishedName(
                x509.NameAttribute(one[0], one[1], *one[2:], _validate=False) for one in part
            )
            for part in name
        ]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name(parts))
        .issuer_name(x509.Name([x509.NameAttribute(CN, "authority")]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 2, tzinfo=UTC))
        .not_valid_after(ENDS)
        .sign(KEY, hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ([((C, "DE"),), ((O, "Acme, Inc."),), ((CN, "alice"),)], "CN=alice,O=Acme\\, Inc.,C=DE"),
        ([((CN, " lead and trail "),)], "CN=\\ lead and trail\\ "),
        ([((CN, 'a+b=c<d>e;f"g\\h#i'),)], 'CN=a\\+b\\=c\\<d\\>e\\;f\\"g\\\\h\\#i'),
        ([((CN, "Ünï ☃"),)], "CN=Ünï ☃"),
        (
            [((NameOID.EMAIL_ADDRESS, "a@b.c"),), ((CN, "x"),)],
            "CN=x,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            [
                ((NameOID.DOMAIN_COMPONENT, "com", Kind.IA5String),),
                ((NameOID.USER_ID, "u1"),),
            ],
            "UID=u1,DC=com",
        ),
        ([((CN, "m"), (OU, "n")), ((NameOID.LOCALITY_NAME, "L"),)], "L=L,CN=m+OU=n"),
        (
            [((NameOID.STATE_OR_PROVINCE_NAME, "s"),), ((NameOID.SERIAL_NUMBER, "12"),)],
            "2.5.4.5=#13023132,ST=s",
        ),
        ([((CN, "bmp", Kind.BMPString),)], "CN=\\00b\\00m\\00p"),
        ([((CN, "univ", Kind.UniversalString),)], "CN=#1c10000000750000006e0000006900000076"),
        ([((CN, "num 1", Kind.NumericString),)], "CN=#12056e756d2031"),
        ([((CN, "a\0b"),)], "CN=a\\00b"),
        ([((CN, "a\nb\x01"),)], "CN=a\nb\x01"),
        ([((CN, ""),), ((O, "o"),)], "O=o,CN="),
        ([((CN, "   "),)], "CN=\\ \\ \\ "),
        ([], ""),
        ([((ObjectIdentifier("2.999.4.100000"), "big"),)], "2.999.4.100000=#0c03626967"),
    ],
)
def test_a_name_is_written_as_java_writes_it(name: list[tuple[Part, ...]], written: str) -> None:
    assert read_certificate(certificate(*name)).subject == written


def test_its_end_is_read_in_either_form() -> None:
    found = read_certificate(certificate(((CN, "x"),)))

    assert (found.begins, found.ends) == (datetime(2020, 1, 2, tzinfo=UTC), ENDS)


def test_what_is_cut_off_anywhere_is_refused() -> None:
    whole = certificate(((CN, "x"),))

    for size in range(len(whole) - 1):
        with pytest.raises(CertificateFormatError):
            read_certificate(whole[:size])
